// franz-go as a client of the interop tests; how it is driven: tests/interop/program.rs.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	recordsPerStep = 5
	step           = 5 * time.Millisecond
)

func main() {
	mode, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, nil)),
	}
	var err error
	if mode == "produce" {
		var count int
		if count, err = strconv.Atoi(os.Args[4]); err == nil {
			err = produce(options, topic, count)
		}
	} else {
		err = consume(options, topic)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
}

func produce(options []kgo.Opt, topic string, count int) error {
	client, err := kgo.NewClient(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for number := range count {
		record := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "value-%d", number)}
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			if err != nil {
				fmt.Fprintln(os.Stderr, "given up", string(record.Value), err)
			} else {
				fmt.Println("acked", string(record.Value), record.Offset)
			}
		})
		if number%recordsPerStep == 0 {
			time.Sleep(step)
		}
	}
	return client.Flush(context.Background())
}

func consume(options []kgo.Opt, topic string) error {
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(append(options, kgo.ConsumePartitions(from))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(context.Background())
		fetches.EachError(func(_ string, _ int32, err error) {
			fmt.Fprintln(os.Stderr, "error", err)
		})
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(record.Offset, string(record.Value))
		})
	}
}
