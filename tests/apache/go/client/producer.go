package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const timeout = 30 * time.Second

type sender struct {
	stock rocketmq.Producer
}

func newProducer(ask fields) (client, error) {
	stock, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{ask.Nameserver}),
		producer.WithInstanceName(ask.Client),
		producer.WithGroupName(ask.Group),
		producer.WithSendMsgTimeout(timeout),
		producer.WithQueueSelector(byShard{producer.NewHashQueueSelector(), producer.NewRoundRobinQueueSelector()}),
	)
	if err != nil {
		return nil, err
	}
	return &sender{stock}, stock.Start()
}

// Messages with a shard keep together, others go round.
type byShard struct{ hash, round producer.QueueSelector }

func (s byShard) Select(message *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if message.GetShardingKey() != "" {
		return s.hash.Select(message, queues, last)
	}
	return s.round.Select(message, queues, last)
}

func (s *sender) shutdown() error { return s.stock.Shutdown() }

func (s *sender) act(what string, ask fields) (any, error) {
	switch what {
	case "send":
		if ask.Async {
			return s.sendAsync(message(ask))
		}
		return receipt(s.stock.SendSync(context.Background(), message(ask)))
	case "oneway":
		return nil, s.stock.SendOneWay(context.Background(), message(ask))
	case "batch":
		batch := []*primitive.Message{}
		for _, each := range ask.Messages {
			batch = append(batch, message(each))
		}
		return receipt(s.stock.SendSync(context.Background(), batch...))
	}
	return nil, fmt.Errorf("a producer cannot %s", what)
}

func (s *sender) sendAsync(message *primitive.Message) (any, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	done := make(chan outcome, 1)
	err := s.stock.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
		done <- outcome{result, err}
	}, message)
	if err != nil {
		return nil, err
	}
	select {
	case came := <-done:
		return receipt(came.result, came.err)
	case <-time.After(timeout):
		return nil, fmt.Errorf("no callback in %s", timeout)
	}
}

func message(ask fields) *primitive.Message {
	made := primitive.NewMessage(ask.Topic, ask.Body)
	for name, value := range ask.Properties {
		made.WithProperty(name, value)
	}
	if ask.Tag != "" {
		made.WithTag(ask.Tag)
	}
	if ask.Key != "" {
		made.WithKeys(strings.Fields(ask.Key))
	}
	if ask.Shard != "" {
		made.WithShardingKey(ask.Shard)
	}
	if ask.DelayLevel != 0 {
		made.WithDelayTimeLevel(ask.DelayLevel)
	}
	return made
}

func receipt(result *primitive.SendResult, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	status := fmt.Sprint(int(result.Status))
	if result.Status == primitive.SendOK {
		status = "SEND_OK"
	}
	return map[string]any{
		"status":    status,
		"id":        result.MsgID,
		"offset_id": result.OffsetMsgID,
		"broker":    result.MessageQueue.BrokerName,
		"queue_id":  result.MessageQueue.QueueId,
		"offset":    result.QueueOffset,
		"region":    result.RegionID,
	}, nil
}
