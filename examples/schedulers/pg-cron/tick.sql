-- Rings Tocsin from PostgreSQL: pg_cron keeps the time, pgcrypto signs, pg_net posts.
--
-- Run it once, as the role whose jobs pg_cron runs; run it again after a change. It keeps what is in its tables.

CREATE EXTENSION IF NOT EXISTS pg_cron;
CREATE EXTENSION IF NOT EXISTS pg_net;
CREATE EXTENSION IF NOT EXISTS pgcrypto;

CREATE SCHEMA IF NOT EXISTS ticking;
REVOKE ALL ON SCHEMA ticking FROM PUBLIC;

-- What is rung, and with which secret. Where the database has a vault, keep the secret there and make `secret` a
-- lookup: on Supabase, `SELECT decrypted_secret FROM vault.decrypted_secrets WHERE name = job`.
CREATE TABLE IF NOT EXISTS ticking.jobs (
    job    text PRIMARY KEY,
    url    text NOT NULL, -- where Tocsin listens
    secret text NOT NULL
);

-- One row for each slot. `request` is the try that is out, by pg_net's number; `taken` is null until the end is known.
CREATE TABLE IF NOT EXISTS ticking.slots (
    job     text NOT NULL,
    run_id  text NOT NULL,
    cutoff  text NOT NULL,
    tries   integer NOT NULL DEFAULT 0,
    request bigint,
    tried   timestamptz,
    taken   boolean,
    answer  text,
    PRIMARY KEY (job, run_id)
);

-- Posts a slot, for the first time or once more: always the same run id and the same cutoff. pg_net sends nothing
-- before the transaction is committed.
CREATE OR REPLACE FUNCTION ticking.post(slot ticking.slots) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    target ticking.jobs;
BEGIN
    SELECT * INTO STRICT target FROM ticking.jobs AS known WHERE known.job = slot.job;
    UPDATE ticking.slots AS mine
       SET tries = tries + 1, tried = now(), request = net.http_post(
               url := rtrim(target.url, '/') || '/v1/jobs/' || slot.job || '/ticks',
               body := jsonb_build_object(
                   'runId', slot.run_id,
                   'cutoffIso', slot.cutoff,
                   'signature', encode(hmac(
                       convert_to(slot.run_id || '.' || slot.cutoff, 'UTF8'),
                       convert_to(target.secret, 'UTF8'),
                       'sha256'
                   ), 'hex')
               ),
               headers := jsonb_build_object('content-type', 'application/json'),
               timeout_milliseconds := 30000
           )
     WHERE mine.job = slot.job AND mine.run_id = slot.run_id;
END
$$;

-- Rings a job for the slot that begins now; the same minute again is the same slot.
CREATE OR REPLACE FUNCTION ticking.ring(which text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    slot ticking.slots;
    instant text := to_char(date_trunc('minute', now()) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
BEGIN
    INSERT INTO ticking.slots (job, run_id, cutoff) VALUES (which, which || '@' || instant, instant)
    ON CONFLICT DO NOTHING RETURNING * INTO slot;
    IF slot.job IS NOT NULL THEN
        PERFORM ticking.post(slot);
    END IF;
END
$$;

-- Looks at the answers. What says "not now", or has had no answer, is posted again, six times in all.
-- Ends in an error where a slot has been given up: pg_cron then notes the call as failed in cron.job_run_details.
CREATE OR REPLACE PROCEDURE ticking.follow() LANGUAGE plpgsql AS $$
DECLARE
    slot ticking.slots;
    got record;
    given_up text := '';
BEGIN
    FOR slot IN SELECT * FROM ticking.slots WHERE taken IS NULL ORDER BY cutoff LOOP
        SELECT status_code, coalesce(error_msg, content) AS said INTO got
          FROM net._http_response WHERE id = slot.request;
        -- One try may take 30 seconds; until then no answer is no news.
        CONTINUE WHEN got.status_code IS NULL AND got.said IS NULL AND slot.tried > now() - interval '45 seconds';
        IF got.status_code IN (200, 202) AND got.said LIKE '%"duplicate"%' THEN
            UPDATE ticking.slots AS mine SET taken = true, answer = left(got.said, 2000)
             WHERE mine.job = slot.job AND mine.run_id = slot.run_id;
        ELSIF slot.tries < 6 AND (coalesce(got.status_code, 503) IN (408, 425, 429) OR
                                  coalesce(got.status_code, 503) >= 500) THEN
            PERFORM ticking.post(slot);
        ELSE
            UPDATE ticking.slots AS mine SET taken = false, answer = left(got.said, 2000)
             WHERE mine.job = slot.job AND mine.run_id = slot.run_id;
            given_up := format('%s %s (HTTP %s)', given_up, slot.run_id, coalesce(got.status_code::text, 'none'));
        END IF;
    END LOOP;
    DELETE FROM ticking.slots WHERE tried < now() - interval '30 days';
    COMMIT;
    IF given_up <> '' THEN
        RAISE EXCEPTION 'not taken:%', given_up USING HINT = 'SELECT * FROM ticking.slots WHERE NOT taken';
    END IF;
END
$$;

-- pg_cron counts in UTC unless cron.timezone says otherwise.
SELECT cron.schedule('shipments-tick', '0 2 * * *', $$SELECT ticking.ring('shipments.expire')$$);
SELECT cron.schedule('follow-ticks', '* * * * *', 'CALL ticking.follow()');
