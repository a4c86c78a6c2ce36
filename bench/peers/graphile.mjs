// graphile-worker at its best: a local queue, and completions in batches.
import { main, pool, post, require } from "./posting.mjs";
const { Logger, run, runMigrations } = require("graphile-worker");

const logger = new Logger(() => () => {});

await main({
  install: () => runMigrations({ pgPool: pool({ max: 2 }), logger }),

  work: ({ concurrency, localQueue }) =>
    run({
      pgPool: pool({ max: 20 }),
      taskList: { post: (job) => post(job) },
      preset: {
        worker: {
          logger,
          concurrentJobs: concurrency,
          localQueue: { size: localQueue },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    }),

  enqueue: async (client, jobs) => {
    const specs = jobs.map((payload) => ({ identifier: "post", payload }));
    await client.query(
      "SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(" +
        "SELECT json_populate_record(null::graphile_worker.job_spec, spec) FROM json_array_elements($1::json) spec), false)",
      [JSON.stringify(specs)],
    );
  },
});
