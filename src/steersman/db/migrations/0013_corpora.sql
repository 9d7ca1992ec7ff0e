-- Corpora: documents of a tenant, cut into passages, searched by words and by meaning.
--
-- A corpus has a revision that grows by one with each committed change. A version of a document and
-- its passages lives from the revision that `added` it until the one that `removed` it, so that any
-- revision can be read as it was, and a corpus snapshot is nothing but a revision with a name. What
-- no snapshot that lives and not the newest revision needs, the keeper sweeps away.
--
-- The service reads these tables; changing them is for whoever administers (role owner, which is
-- held by the same policy).

CREATE TABLE corpus (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  id uuid NOT NULL, -- a corpus that is dropped and made again under its name is another
  name text COLLATE "C" NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
  revision bigint NOT NULL DEFAULT 0 CHECK (revision >= 0),
  -- How often documents were erased from every revision: what was loaded before holds them still.
  erasures bigint NOT NULL DEFAULT 0,
  embedder text,           -- how it was named: minilm, or a URL; NULL: searched by words alone
  embedder_name text COLLATE "C", -- what tells its vectors from all others
  dimension integer CHECK (dimension BETWEEN 1 AND 65536),
  chunking jsonb NOT NULL, -- how documents are cut
  near double precision CHECK (near > 0 AND near <= 1), -- passages as similar as this are found once
  created_at timestamptz NOT NULL DEFAULT now(),
  changed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, name),
  CHECK ((embedder IS NULL) = (embedder_name IS NULL)
    AND (embedder IS NULL) = (dimension IS NULL))
);

CREATE TABLE corpus_snapshot (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  corpus uuid NOT NULL,
  name text COLLATE "C" NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
  revision bigint NOT NULL,
  documents bigint NOT NULL,
  passages bigint NOT NULL,
  digest bytea NOT NULL, -- SHA-256 over ids and hashes of its passages
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz, -- NULL: never
  PRIMARY KEY (tenant, corpus, name)
);

CREATE TABLE corpus_document (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  corpus uuid NOT NULL,
  doc_id text COLLATE "C" NOT NULL,
  added bigint NOT NULL,
  removed bigint CHECK (removed > added), -- NULL: it is in the newest revision
  removed_at timestamptz,
  text text NOT NULL,     -- as decoded: passages are spans of it, in characters
  sha256 bytea NOT NULL,  -- of the text in UTF-8
  fingerprint bytea NOT NULL, -- of all that is below and above: another one is a change
  title text NOT NULL,
  source text NOT NULL,
  meta jsonb NOT NULL,
  PRIMARY KEY (tenant, corpus, doc_id, added)
);
CREATE UNIQUE INDEX corpus_document_newest ON corpus_document (tenant, corpus, doc_id)
  WHERE removed IS NULL;
CREATE INDEX corpus_document_removed ON corpus_document (tenant, removed_at)
  WHERE removed IS NOT NULL;

CREATE TABLE corpus_passage (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  corpus uuid NOT NULL,
  doc_id text COLLATE "C" NOT NULL,
  added bigint NOT NULL,
  removed bigint CHECK (removed > added),
  chunk integer NOT NULL,
  text_start integer NOT NULL,
  text_end integer NOT NULL,
  headings text[] NOT NULL,
  page integer,
  chunker text NOT NULL,
  hash bytea NOT NULL, -- SHA-256 of what is ranked: title, headings and text
  PRIMARY KEY (tenant, corpus, doc_id, added, chunk),
  CHECK (0 <= text_start AND text_start <= text_end)
);
CREATE INDEX corpus_passage_hash ON corpus_passage (tenant, corpus, hash, added);

-- Each text is embedded once per tenant and embedder, whichever corpora hold it.
CREATE TABLE corpus_vector (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  embedder text COLLATE "C" NOT NULL,
  hash bytea NOT NULL,
  vector bytea NOT NULL CHECK (octet_length(vector) <= 131072), -- 16-bit floats, little end first
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant, embedder, hash)
);
-- Numbers that look random: compressing them would only cost time.
ALTER TABLE corpus_vector ALTER COLUMN vector SET STORAGE EXTERNAL;

-- Which passages lead to which, by their places among those of a revision.
CREATE TABLE corpus_links (
  tenant uuid NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
  corpus uuid NOT NULL,
  revision bigint NOT NULL,
  passages bytea NOT NULL, -- SHA-256 over the hashes of those that are linked, in their order
  starts bytea NOT NULL,   -- 64-bit integers: where the links of each passage begin
  targets bytea NOT NULL,  -- 32-bit integers
  kinds bytea NOT NULL,    -- a byte each
  PRIMARY KEY (tenant, corpus, revision)
);

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY[
    'corpus', 'corpus_snapshot', 'corpus_document', 'corpus_passage', 'corpus_vector',
    'corpus_links'
  ] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format(
      'CREATE POLICY own_rows ON %I USING (tenant = %s) WITH CHECK (tenant = %2$s)',
      name, $x$ (SELECT nullif(current_setting('app.tenant', true), '')::uuid) $x$
    );
  END LOOP;
END
$$;

GRANT SELECT ON corpus, corpus_snapshot, corpus_document, corpus_passage, corpus_vector,
  corpus_links TO steersman_app;
