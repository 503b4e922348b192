// kafkajs as a client of the interop tests; how it is driven: tests/interop/program.rs.
//
// kafkajs reads through consumer groups only, so there is no `consume` here: `offsets` prints where
// the log begins and ends.

const { Kafka, Partitioners, logLevel } = require("kafkajs");

const RECORDS_PER_STEP = 5;
const STEP_MS = 5;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function produce(kafka, topic, count, idempotent) {
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,

    ...(idempotent ? { idempotent: true, maxInFlightRequests: 1 } : {}),
  });
  await producer.connect();
  for (let number = 0; number < count; number += RECORDS_PER_STEP) {
    const values = [];
    for (let at = number; at < Math.min(number + RECORDS_PER_STEP, count); at += 1) {
      values.push(`value-${at}`);
    }
    const messages = values.map((value) => ({ value, partition: 0 }));
    const [{ baseOffset }] = await producer.send({ topic, messages });
    values.forEach((value, index) => {
      console.log(`acked ${value} ${BigInt(baseOffset) + BigInt(index)}`);
    });
    await pause(STEP_MS);
  }
  await producer.disconnect();
}

async function offsets(kafka, topic) {
  const admin = kafka.admin();
  await admin.connect();
  const [{ low, high }] = await admin.fetchTopicOffsets(topic);
  console.log(`offsets ${low} ${high}`);
  await admin.disconnect();
}

const [mode, bootstrap, topic, count, settings] = process.argv.slice(2);
const kafka = new Kafka({
  clientId: "interop",
  brokers: bootstrap.split(","),
  logLevel: logLevel.DEBUG,
  logCreator: () => ({ log }) => console.error(JSON.stringify(log)),
});
const task =
  mode === "produce"
    ? produce(kafka, topic, Number(count), settings === "idempotent")
    : offsets(kafka, topic);
task.catch((error) => {
  console.error("failed:", error);
  process.exit(1);
});
