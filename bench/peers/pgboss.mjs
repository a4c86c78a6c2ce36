// pg-boss at its best: batches settled job by job, fetched again at once while they come back full, woken by NOTIFY.
import { main, post, require } from "./posting.mjs";
const { PgBoss } = require("pg-boss");

const boss = (options) => {
  const made = new PgBoss({ schedule: false, useListenNotify: true, ...options });
  made.on("error", (error) => console.error(error));
  return made;
};

await main({
  install: async () => {
    const made = boss();
    await made.start();
    await made.createQueue("post", { notify: true });
    await made.stop();
  },

  work: async ({ batchSize, fetchers }) => {
    const made = boss();
    await made.start();
    const options = {
      batchSize,
      localConcurrency: fetchers,
      perJobResults: true,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
      notifyPollingIntervalSeconds: 0.5,
    };
    await made.work("post", options, (jobs) =>
      Promise.all(jobs.map(({ id, data }) => post(data).then(() => ({ id, status: "completed" })))),
    );
    process.on("SIGTERM", () => made.stop().then(() => process.exit(0)));
  },

  enqueue: async (client, jobs) => {
    const made = boss({ db: { executeSql: (text, values) => client.query(text, values) }, useListenNotify: false });
    await made.insert("post", jobs.map((data) => ({ data })));
  },
});
