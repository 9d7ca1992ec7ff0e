"""What two tenants do to units, keys, versions and corpora, each other's too; of `TwoTenants`."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule

from steersman.retrieval.documents.document import Document
from tests.retrieval.corpora import SMALL, corpora

WHO = st.sampled_from([0, 1])
NAMES = st.sampled_from([f"n-{n}" for n in range(6)])
PLACES = st.integers(0, 99)
WORDS = ("zirconium", "palladium")
WORST = {"variant": "bm25", "k": 3}


async def filled(database, tenant, number):
    """Give a tenant a corpus `manuals` of its own words, and the first one `hidden` besides."""
    word = WORDS[number]
    texts = [Document("same.md", f"A pump of {word}."), Document(word, f"A valve of {word}.")]
    for name in ("manuals", "hidden")[: 2 - number]:
        corpus = corpora(database, tenant)
        await corpus.add(name, texts, embedder="hashed", chunking=SMALL)


class DataRules:
    """Rules; a tenant has ``made`` (keys), ``key_ids``, ``erased`` and ``retracted``."""

    @rule(who=WHO, unit=NAMES)
    def export_a_unit(self, who, unit):
        mine = self.tenants[who]
        status, text = self.http.call(mine.access, "POST", "/v1/units/export", {"unit": unit})
        lines = [msgspec.json.decode(line) for line in text.splitlines()]
        rows = {table: [] for table in ("decision", "event", "reward", "update")}
        for line in lines:
            rows[line["table"]].append(line["row"])
        assert status == 200
        assert {row["id"] for row in rows["decision"]} == mine.of_unit(unit)
        assert {row["id"] for row in rows["event"]} == mine.events_about(mine.of_unit(unit))

    @rule(who=WHO, unit=NAMES)
    def erase_a_unit(self, who, unit):
        mine = self.tenants[who]
        gone = mine.of_unit(unit)
        events = mine.events_about(gone)
        status, answer = self.post(who, "/v1/units/erase", {"unit": unit, "reason": "asked"})
        assert (status, answer["decisions"]) == (200, sorted(gone))
        assert (answer["rows"]["decision"], answer["rows"]["event"]) == (len(gone), len(events))
        assert (answer["learned"], answer["published"]) == ([], [])
        mine.forget(gone, events)

    @rule(who=WHO, place=PLACES)
    def erase_the_others(self, who, place):
        """What is written down is that I want it gone; nothing of the other's goes."""
        mine, foreign = self.tenants[who], self.foreign(who)
        if foreign:
            name = foreign[place % len(foreign)]
            body = {"decisions": ["ID"], "reason": "curious"}
            status, text = self.same_as_unknown(who, "POST", "/v1/units/erase", name, body)
            assert status == 200
            assert set(msgspec.json.decode(text)["rows"].values()) == {0}
            mine.erased.add(name)

    @rule(who=WHO, name=NAMES)
    def make_a_key(self, who, name):
        mine = self.tenants[who]
        if len(mine.key_ids) < 4:
            body = {"name": name, "role": "observer"}
            status, made = self.post(who, "/v1/keys", body)
            assert status == 201
            mine.key_ids.append(made["id"])
            mine.made.append(made["id"])

    @rule(who=WHO, place=PLACES, rotate=st.booleans())
    def end_a_key(self, who, place, rotate):
        mine, other = self.tenants[who], self.tenants[1 - who]
        if not mine.made:
            return
        name = mine.made.pop(place % len(mine.made))
        if rotate:
            status, made = self.post(who, f"/v1/keys/{name}/rotate", {"grace_s": 0})
            assert status == 201
            assert made["id"] not in other.key_ids
            mine.made.append(made["id"])
        else:
            status, _ = self.http.call(mine.access, "DELETE", f"/v1/keys/{name}")
            assert status == 200

    @rule(who=WHO)
    def retract_the_others_candidate(self, who):
        other = self.tenants[1 - who]
        body = {"skill": "search", "decision": "depth", "version": "ID", "reason": "r"}
        answer = self.same_as_unknown(
            who, "POST", "/v1/snapshots/retract", other.candidate, {**body, "take_back": True}
        )
        assert answer[0] == 409

    @rule(who=WHO)
    def retract_mine(self, who):
        mine = self.tenants[who]
        if mine.status in {"running", "paused"}:
            return
        body = {"skill": "search", "decision": "depth", "version": mine.candidate, "reason": "r"}
        status, answer = self.post(who, "/v1/snapshots/retract", body)
        assert (status, answer["version"]) == (200, mine.candidate)
        mine.retracted = True

    @rule(who=WHO)
    def plan(self, who):
        """How long a rollout takes is told from one's own traffic."""
        mine = self.tenants[who]
        body = {"skill": "search", "decision": "depth", "effect": 0.05}
        body |= {"sd": 0.25, "units_per_day": 2000}
        status, answer = self.post(who, "/v1/rollouts/plan", body)
        assert status == 200
        sure = sum("episode" in told and told["logged"] is True for told in mine.decisions.values())
        assert sure <= answer["logged"]["decisions"] <= len(mine.decisions)

    @rule(who=WHO, query=st.sampled_from(["pump", "valve", *WORDS]))
    def search(self, who, query):
        body = {"corpus": "manuals", "query": query, "deadline_ms": 60_000, **WORST}
        status, answer = self.post(who, "/v1/search", body)
        assert status == 200
        assert {hit["doc_id"] for hit in answer["hits"]} <= {"same.md", WORDS[who]}
        found = b"".join(msgspec.json.encode(hit) for hit in answer["hits"]).decode()
        assert WORDS[1 - who] not in found
        assert bool(answer["hits"]) == (query != WORDS[1 - who])

    @rule(who=WHO)
    def read_documents(self, who):
        body = {"corpus": "manuals", "doc_id": "same.md"}
        status, answer = self.post(who, "/v1/documents", body)
        assert (status, answer["text"]) == (200, f"A pump of {WORDS[who]}.")
        body = {"corpus": "manuals", "doc_id": "ID"}
        answer = self.same_as_unknown(who, "POST", "/v1/documents", WORDS[1 - who], body)
        assert answer[0] == 404

    @rule()
    def ask_for_corpora(self):
        """Only the first has a corpus `hidden`; to the second there is no such thing."""
        for path, body in (
            ("/v1/search", {"query": "pump"}),
            ("/v1/documents", {"doc_id": "same.md"}),
            ("/tuner/evaluate", self.evaluation("same.md")),
        ):
            answer = self.same_as_unknown(1, "POST", path, "hidden", {**body, "corpus": "ID"})
            assert answer[0] == 404

    @rule(who=WHO)
    def evaluate(self, who):
        """That a document of the other's is asked for finds as little as any that is nowhere."""
        body = {"corpus": "manuals", **self.evaluation("same.md", WORDS[1 - who])}
        status, answer = self.post(who, "/tuner/evaluate", {**body, "deadline_ms": 60_000})
        assert status == 200, answer
        assert answer["missing_gold"] == [WORDS[1 - who]]

    def evaluation(self, *gold):
        """Return what is to be evaluated, but for the corpus."""
        return {"configurations": [WORST], "questions": [{"text": "a pump", "gold": list(gold)}]}

    def foreign(self, who):
        """Return ids of the other's decisions that mean nothing to a tenant."""
        mine, other = self.tenants[who], self.tenants[1 - who]
        return [d for d in other.decisions if d not in mine.decisions and d not in mine.erased]
