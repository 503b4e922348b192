"""confluent-kafka as a client of the interop tests; how it is driven: tests/interop/program.rs."""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

RECORDS_PER_STEP = 5
STEP_SECONDS = 0.005
DEBUG = "feature,protocol,broker,eos"


def produce(bootstrap, topic, count, idempotent):
    settings = {"bootstrap.servers": bootstrap, "debug": DEBUG}
    if idempotent:
        settings["enable.idempotence"] = True
    producer = Producer(settings)

    def delivered(error, message):
        if error is not None:
            print("given up", message.value().decode(), error, file=sys.stderr)
        else:
            print("acked", message.value().decode(), message.offset(), flush=True)

    for number in range(count):
        producer.produce(topic, f"value-{number}", partition=0, on_delivery=delivered)
        if number % RECORDS_PER_STEP == 0:
            producer.poll(STEP_SECONDS)
            time.sleep(STEP_SECONDS)
    sys.exit(producer.flush(60))


def consume(bootstrap, topic):
    # librdkafka wants the name of a group even where none is joined.
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "debug": DEBUG,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            print("error", message.error(), file=sys.stderr)
        else:
            print(message.offset(), message.value().decode(), flush=True)


if __name__ == "__main__":
    mode, servers, name = sys.argv[1:4]
    if mode == "produce":
        produce(servers, name, int(sys.argv[4]), sys.argv[5] == "idempotent")
    else:
        consume(servers, name)
