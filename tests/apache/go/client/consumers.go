package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func options(ask fields) []consumer.Option {
	model := consumer.Clustering
	if ask.Broadcast {
		model = consumer.BroadCasting
	}
	chosen := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{ask.Nameserver}),
		consumer.WithInstance(ask.Client),
		consumer.WithGroupName(ask.Group),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(ask.Ordered),
		consumer.WithSuspendCurrentQueueTimeMillis(10 * time.Millisecond),
		consumer.WithStrategy(observed(ask.Client)),
	}
	if ask.TriesMax > 0 {
		chosen = append(chosen, consumer.WithMaxReconsumeTimes(ask.TriesMax))
	}
	return chosen
}

// The stock strategy, and an event each time it is asked.
func observed(name string) consumer.AllocateStrategy {
	return func(group, id string, all []*primitive.MessageQueue, members []string) []*primitive.MessageQueue {
		mine := consumer.AllocateByAveragely(group, id, all, members)
		queues := []queue{}
		for _, mq := range mine {
			queues = append(queues, queueOf(mq))
		}
		events.add(name, "shared", map[string]any{
			"topic": all[0].Topic, "members": append([]string{}, members...), "queues": queues,
		})
		return mine
	}
}

func selectors(ask fields) map[string]consumer.MessageSelector {
	chosen := map[string]consumer.MessageSelector{}
	for topic, tags := range ask.Tags {
		chosen[topic] = consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	}
	for topic, sql := range ask.SQL {
		chosen[topic] = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	return chosen
}

type pusher struct {
	stock rocketmq.PushConsumer
}

func newPush(ask fields) (client, error) {
	stock, err := rocketmq.NewPushConsumer(options(ask)...)
	if err != nil {
		return nil, err
	}
	for topic, selector := range selectors(ask) {
		if err = stock.Subscribe(topic, selector, listener(ask)); err != nil {
			return nil, err
		}
	}
	return &pusher{stock}, stock.Start()
}

func listener(ask fields) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		good := true
		for _, message := range messages {
			events.add(ask.Client, "message", describe(message))
			good = good && message.ReconsumeTimes >= ask.Failures
		}
		if good {
			return consumer.ConsumeSuccess, nil
		}
		if ask.Ordered {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = ask.DelayLevel
		}
		return consumer.ConsumeRetryLater, nil
	}
}

func (p *pusher) shutdown() error { return p.stock.Shutdown() }

func (p *pusher) act(what string, _ fields) (any, error) {
	return nil, fmt.Errorf("a push consumer cannot %s", what)
}

type puller struct {
	stock rocketmq.PullConsumer
}

func newPull(ask fields) (client, error) {
	stock, err := rocketmq.NewPullConsumer(options(ask)...)
	if err != nil {
		return nil, err
	}
	for topic, selector := range selectors(ask) {
		if err = stock.Subscribe(topic, selector); err != nil {
			return nil, err
		}
	}
	return &puller{stock}, stock.Start()
}

func (p *puller) shutdown() error { return p.stock.Shutdown() }

func (p *puller) act(what string, ask fields) (any, error) {
	switch what {
	case "poll":
		found, err := p.stock.Poll(context.Background(), 200*time.Millisecond)
		if errors.Is(err, consumer.ErrNoNewMsg) {
			return []any{}, nil
		}
		if err != nil {
			return nil, err
		}
		p.stock.ACK(context.Background(), found, consumer.ConsumeSuccess)
		return describeAll(found.GetMsgList()), nil
	case "pull":
		found, err := p.stock.PullFrom(context.Background(), ask.Queue.stock(), ask.Offset, ask.Most)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"status":   []string{"FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL", "TIMEOUT"}[found.Status],
			"next":     found.NextBeginOffset,
			"first":    found.MinOffset,
			"end":      found.MaxOffset,
			"messages": describeAll(found.GetMessageExts()),
		}, nil
	case "commit":
		return nil, p.stock.PersistOffset(context.Background(), ask.Topic)
	}
	return nil, fmt.Errorf("a pull consumer cannot %s", what)
}
