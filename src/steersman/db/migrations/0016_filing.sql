-- Evaluations that the service makes for a request file what detectors found on the review list, as
-- role app: no request opens a connection of the role that may alter and drop tables.
--
-- What a person says of an item is not for whoever files it: these columns are left out.
GRANT INSERT (tenant, id, at, detector, kinds, score, subject, excerpt) ON review TO steersman_app;
