"""Controllers on simulated traffic: what is good is promoted, what is bad is taken back."""

from tests.rollout.world import check_history, world


async def test_a_good_candidate_goes_through_every_stage_and_takes_over(database, tenant):
    w = await world(database, tenant.id)
    begun = await w.start()
    assert (begun.stage, begun.share) == ("shadow", 0.0)
    async with w.controlled():
        ended = await w.drive(begun.id, steps=40, candidate=0.9, control=0.4)
    rows = await check_history(w, begun.id)
    told = [(row.stage, row.verdict, row.acted, row.reasons) for row in rows][-6:]
    assert ended.status == "promoted", told
    acted = [(row.stage, row.acted) for row in rows if row.acted not in {"none", "held"}]
    assert acted == [
        ("shadow", "next_stage"),
        ("canary", "next_stage"),
        ("ab", "next_stage"),
        ("ab", "next_stage"),
        ("live", "promoted"),
    ]
    assert (await w.point()).snapshot == w.candidate
