// Stock Go clients, driven by lines: a JSON object in, {"ok": …} or {"error": …} out. It speaks as the Java program beside
// it does; what it cannot, it answers with an error.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const lineBytesMax = 16 << 20

type client interface {
	act(what string, ask fields) (any, error)
	shutdown() error
}

var clients = map[string]client{}

func main() {
	rlog.SetLogLevel("error")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), lineBytesMax)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var ask fields
		var answer any
		err := json.Unmarshal(lines.Bytes(), &ask)
		if err == nil {
			answer, err = answerTo(ask)
		}
		if err != nil {
			_ = out.Encode(map[string]any{"error": err.Error(), "code": -1})
		} else {
			_ = out.Encode(map[string]any{"ok": answer})
		}
	}
}

func answerTo(ask fields) (any, error) {
	switch ask.Do {
	case "events":
		return events.since(ask.From), nil
	case "make":
		made, err := make_(ask)
		if err == nil {
			clients[ask.Client] = made
		}
		return ask.Client, err
	}
	found := clients[ask.Client]
	if found == nil {
		return nil, fmt.Errorf("no client is called %s", ask.Client)
	}
	if ask.Do == "shutdown" {
		delete(clients, ask.Client)
		return nil, found.shutdown()
	}
	return found.act(ask.Do, ask)
}

func make_(ask fields) (client, error) {
	switch ask.Kind {
	case "producer":
		return newProducer(ask)
	case "push":
		return newPush(ask)
	case "pull":
		return newPull(ask)
	}
	return nil, fmt.Errorf("no kind %s", ask.Kind)
}
