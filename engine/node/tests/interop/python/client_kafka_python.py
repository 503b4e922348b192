"""kafka-python as a client of the interop tests; how it is driven: tests/interop/program.rs."""

import logging
import sys
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

RECORDS_PER_STEP = 5
STEP_SECONDS = 0.005


def produce(bootstrap, topic, count):
    producer = KafkaProducer(bootstrap_servers=bootstrap)

    def send(number):
        value = f"value-{number}"

        def acked(metadata):
            print("acked", value, metadata.offset, flush=True)

        def given_up(error):
            print("given up", value, repr(error), file=sys.stderr)

        sent = producer.send(topic, value.encode(), partition=0)
        sent.add_callback(acked).add_errback(given_up)

    for number in range(count):
        send(number)
        if number % RECORDS_PER_STEP == 0:
            time.sleep(STEP_SECONDS)
    producer.flush(60)
    producer.close(5)


def consume(bootstrap, topic):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    for record in consumer:
        print(record.offset, record.value.decode(), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    mode, servers, name = sys.argv[1:4]
    servers = servers.split(",")
    if mode == "produce":
        produce(servers, name, int(sys.argv[4]))
    else:
        consume(servers, name)
