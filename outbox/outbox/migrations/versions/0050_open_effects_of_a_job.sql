-- How the effects of one job are found whose outcome is unknown, however many it has. Alone in its revision: to build it the effects are read.
CREATE INDEX IF NOT EXISTS effects_open_of_job ON {schema}.effects (job_id, name) WHERE state IN ('pending', 'uncertain');
