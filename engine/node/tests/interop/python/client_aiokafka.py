"""aiokafka as a client of the interop tests; how it is driven: tests/interop/program.rs."""

import asyncio
import logging
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORDS_PER_STEP = 5
STEP_SECONDS = 0.005


async def produce(bootstrap, topic, count, idempotent):
    settings = {"enable_idempotence": True} if idempotent else {}
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await producer.start()

    def delivered(value, sent):
        if sent.exception() is not None:
            print("given up", value, repr(sent.exception()), file=sys.stderr)
        else:
            print("acked", value, sent.result().offset, flush=True)

    for number in range(count):
        value = f"value-{number}"
        sent = await producer.send(topic, value.encode(), partition=0)
        sent.add_done_callback(lambda sent, value=value: delivered(value, sent))
        if number % RECORDS_PER_STEP == 0:
            await asyncio.sleep(STEP_SECONDS)
    await producer.stop()


async def consume(bootstrap, topic):
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.start()
    async for record in consumer:
        print(record.offset, record.value.decode(), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    mode, servers, name = sys.argv[1:4]
    if mode == "produce":
        asyncio.run(produce(servers, name, int(sys.argv[4]), sys.argv[5] == "idempotent"))
    else:
        asyncio.run(consume(servers, name))
