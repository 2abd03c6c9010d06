-- What a job is about, of payloads that say so. A column without a default rewrites no row.
ALTER TABLE {schema}.jobs ADD COLUMN subject text;

-- Of writers that supersede jobs of one subject at once, one goes first: each inserts the subject here and deletes it again, so that the next one
-- waits for its transaction to end. Nothing is ever seen in here. Unlike an advisory lock, it takes no room in the server's table of locks.
CREATE TABLE {schema}.subject_turns (
  tenant  text NOT NULL,
  subject text NOT NULL,
  PRIMARY KEY (tenant, subject)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_insert_threshold = -1);

-- Writes jobs as enqueue_3 does, with their subjects: p_subjects holds one for each job of p_jobs, an empty one for none. Where p_supersedes is on,
-- it also holds, for the caller's transaction, the waiting jobs of the same subjects, so that the caller can end them; and says which they are.
-- It answers as enqueue_3, or U+001C and JSON: written (enqueue_3's answer), held (pairs of a job, and the new one of its subject); or, where nothing
-- was written: level (a transaction's isolation, in which it can't be seen what waits), or subject (the kind and subject of which more than p_most wait).
-- Of several new jobs of a subject the one with the largest id, which was submitted last, stands for the others, which are held, too.
-- What could pass each other takes its locks in one order: keys, turns, outbox rows; each of them sorted.
-- enable_seqscan: a plan that was made while the outbox was empty would read all of it later on.
CREATE FUNCTION {schema}.enqueue_subjects_1(p_jobs text, p_bounded text, p_subjects text, p_supersedes boolean, p_most integer) RETURNS text
  LANGUAGE plpgsql VOLATILE SET enable_seqscan = off
AS $function$
DECLARE
  v_columns text[] := string_to_array(p_jobs, E'\x1e');
  v_tenant text := split_part(v_columns[1], E'\x1f', 1);
  v_ids uuid[] := string_to_array(v_columns[2], E'\x1f')::uuid[];
  v_kinds text[] := string_to_array(v_columns[3], E'\x1f');
  v_subjects text[] := string_to_array(p_subjects, E'\x1f');
  v_marks text[];
  v_answer text;
  v_new uuid[];
  v_crowded text;
  v_held json;
BEGIN
  IF p_supersedes AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RETURN E'\x1c' || json_build_object('level', current_setting('transaction_isolation'));
  END IF;
  SELECT array_agg(CASE WHEN i.subject <> '' THEN i.kind || ':' || i.subject END ORDER BY i.n) INTO v_marks
  FROM unnest(v_kinds, v_subjects) WITH ORDINALITY AS i(kind, subject, n);
  IF p_supersedes THEN
    SELECT m.mark INTO v_crowded FROM (SELECT DISTINCT u.mark FROM unnest(v_marks) AS u(mark)) AS m
    WHERE (SELECT count(*) FROM (
      SELECT 1 FROM {schema}.outbox AS o WHERE o.tenant = v_tenant AND o.subject = m.mark AND o.subject IS NOT NULL AND o.phase IN ('owed', 'released')
      LIMIT p_most + 1) AS w) > p_most
    LIMIT 1;
    IF v_crowded IS NOT NULL THEN
      RETURN E'\x1c' || json_build_object('subject', v_crowded);
    END IF;
  END IF;
  v_answer := {schema}.enqueue_3(p_jobs, p_bounded);
  IF v_answer ~ E'^[\x1d\x1e]' THEN
    RETURN v_answer;
  END IF;
  WITH written AS (
    UPDATE {schema}.jobs AS j SET subject = v_subjects[array_position(v_ids, j.id)]
    WHERE j.id = ANY (v_ids) AND v_subjects[array_position(v_ids, j.id)] <> '' AND j.subject IS NULL
    RETURNING j.id
  )
  SELECT array_agg(w.id) INTO v_new FROM written AS w;
  IF v_new IS NULL THEN
    RETURN v_answer;
  END IF;
  UPDATE {schema}.outbox AS o SET subject = v_marks[array_position(v_ids, o.job_id)] WHERE o.job_id = ANY (v_new);
  IF NOT p_supersedes THEN
    RETURN v_answer;
  END IF;
  INSERT INTO {schema}.subject_turns (tenant, subject)
  SELECT v_tenant, m.mark FROM (SELECT DISTINCT v_marks[array_position(v_ids, n.id)] AS mark FROM unnest(v_new) AS n(id)) AS m ORDER BY m.mark COLLATE "C";
  DELETE FROM {schema}.subject_turns AS t WHERE t.tenant = v_tenant AND t.subject = ANY (v_marks);
  -- A statement of its own, so that it sees what those who had their turn before have committed.
  WITH stands AS MATERIALIZED (
    SELECT DISTINCT ON (v_marks[array_position(v_ids, n.id)]) v_marks[array_position(v_ids, n.id)] AS mark, n.id
    FROM unnest(v_new) AS n(id) ORDER BY v_marks[array_position(v_ids, n.id)], n.id DESC
  ), held AS MATERIALIZED (
    SELECT o.job_id, o.subject FROM {schema}.outbox AS o
    WHERE o.tenant = v_tenant AND o.subject = ANY (ARRAY(SELECT s.mark FROM stands AS s)) AND o.subject IS NOT NULL
      AND o.phase IN ('owed', 'released') AND o.job_id <> ALL (ARRAY(SELECT s.id FROM stands AS s))
    ORDER BY o.job_id FOR UPDATE
  )
  SELECT json_agg(json_build_array(h.job_id, s.id) ORDER BY h.job_id) INTO v_held FROM held AS h JOIN stands AS s ON s.mark = h.subject;
  IF v_held IS NULL THEN
    RETURN v_answer;
  END IF;
  RETURN E'\x1c' || json_build_object('written', v_answer, 'held', v_held);
END
$function$;
