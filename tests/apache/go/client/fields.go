package main

import (
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// One line. Bodies are base64 on the wire and bytes here.
type fields struct {
	Do         string            `json:"do"`
	Client     string            `json:"client"`
	Kind       string            `json:"kind"`
	Group      string            `json:"group"`
	Nameserver string            `json:"nameserver"`
	From       int               `json:"from"`
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Tag        string            `json:"tag"`
	Key        string            `json:"key"`
	Shard      string            `json:"shard"`
	DelayLevel int               `json:"delay_level"`
	Properties map[string]string `json:"properties"`
	Async      bool              `json:"async"`
	Messages   []fields          `json:"messages"`
	Tags       map[string]string `json:"tags"`
	SQL        map[string]string `json:"sql"`
	Ordered    bool              `json:"ordered"`
	Broadcast  bool              `json:"broadcasting"`
	Failures   int32             `json:"failures"`
	TriesMax   int32             `json:"tries_max"`
	Queue      queue             `json:"queue"`
	Offset     int64             `json:"offset"`
	Most       int               `json:"most"`
}

type queue struct {
	Topic  string `json:"topic"`
	Broker string `json:"broker"`
	ID     int    `json:"id"`
}

func queueOf(mq *primitive.MessageQueue) queue {
	return queue{Topic: mq.Topic, Broker: mq.BrokerName, ID: mq.QueueId}
}

func (q queue) stock() *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: q.Topic, BrokerName: q.Broker, QueueId: q.ID}
}

func describe(message *primitive.MessageExt) map[string]any {
	described := map[string]any{
		"topic":      message.Topic,
		"offset":     message.QueueOffset,
		"id":         message.MsgId,
		"offset_id":  message.OffsetMsgId,
		"body":       message.Body,
		"flag":       message.Flag,
		"sys_flag":   message.SysFlag,
		"times":      message.ReconsumeTimes,
		"born_ms":    message.BornTimestamp,
		"stored_ms":  message.StoreTimestamp,
		"properties": message.GetProperties(),
		"queue_id":   0,
	}
	if message.Queue != nil {
		described["broker"], described["queue_id"] = message.Queue.BrokerName, message.Queue.QueueId
		described["from"] = queueOf(message.Queue)
	}
	return described
}

func describeAll(messages []*primitive.MessageExt) []map[string]any {
	all := []map[string]any{}
	for _, message := range messages {
		all = append(all, describe(message))
	}
	return all
}

type eventLog struct {
	lock sync.Mutex
	all  []map[string]any
}

var events eventLog

func (log *eventLog) add(client, kind string, details map[string]any) {
	log.lock.Lock()
	defer log.lock.Unlock()
	details["number"], details["client"], details["kind"] = len(log.all), client, kind
	log.all = append(log.all, details)
}

func (log *eventLog) since(number int) []map[string]any {
	log.lock.Lock()
	defer log.lock.Unlock()
	return append([]map[string]any{}, log.all[min(number, len(log.all)):]...)
}
