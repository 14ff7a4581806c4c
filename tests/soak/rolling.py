"""Rolling upgrades and downgrades under load: workers of an earlier release and of this tree share one store.

All workers are replaced, one by one, by the other release, and back again: some end by SIGTERM, some by SIGKILL, each
within a run. Rounds of half a minute with other settings: `--minutes N` on each store (`--store redis|sqlite|both`),
from `--seed S` on; `--from REF` names the earlier release, by default the newest tag before this commit. What the
bodies stamped is read as in a round of chaos: nothing may overlap, and no slot or tick may run twice.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import get_args

from chaos.conductor import SRC, play
from chaos.plan import StoreKind, draw_plan
from chaos.releases import NoHistory, commit_of, export, previous
from soak._evidence import arguments, conclude, say
from soak.chaos import Account, table

ROUND = 25.0
"""Seconds of deploys in a round, the last one brought to its end; then all must come back."""

EACH_WAY = ((0, 1), (1, 0))


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--from", dest="ref", default=None, help="the earlier release; default: the newest tag")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--store", choices=[*get_args(StoreKind), "both"], default="both")
    parser.add_argument("--seed", default=None, help="the rounds' seeds begin with it; default: the time of day")
    options = parser.parse_args()
    seed = options.seed or time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    stores: list[StoreKind] = [kind for kind in get_args(StoreKind) if options.store in {kind, "both"}]
    try:
        ref = options.ref or previous()
        commit = commit_of(ref)
    except NoHistory as error:
        sys.exit(f"rolling: {error}; write --from REF")
    accounts = {store: Account() for store in stores}
    ways = {store: Counter[tuple[int, int]]() for store in stores}
    spent = dict.fromkeys(stores, 0.0)
    with tempfile.TemporaryDirectory() as place:
        trees = [export(ref, Path(place)), SRC]
        while any(spent[store] < 60 * options.minutes for store in stores):
            for store in stores:
                account = accounts[store]
                plan = draw_plan(f"{seed}-{account.rounds}", store)
                # The file of a store is made by the old release and by the new one in turn.
                order = (0, 1) if account.rounds % 2 == 0 else (1, 0)
                say(f"round {account.rounds + 1}, begins {'old' if order[0] == 0 else 'new'}: {plan}")
                begun = time.monotonic()
                with tempfile.TemporaryDirectory() as directory:
                    result = asyncio.run(play(plan, Path(directory), ROUND, trees=[trees[one] for one in order]))
                account.add(result)
                way = Counter({(order[a], order[b]): count for (a, b), count in result.hand_overs().items()})
                ways[store] += way
                spent[store] += time.monotonic() - begun
                say(f"  {len(result.history.runs)} runs, {told(way)}; {len(account.violations)} violations")
    say(table(accounts))
    conclude(
        "rolling",
        [
            (
                f"seed {seed}; old is {ref}{'' if ref == commit else f' ({commit})'}, new this tree; 3 or 4 workers"
                " with six jobs, async and sync, of the three shapes, all replaced one by one, old by new and new by"
                " old; `term` is SIGTERM and `kill` SIGKILL; scaled: `lock_expiry` 1 to 2 s; stamps on the boot clock"
            ),
            *(f"{account.line(store, spent[store] / 60)}; {told(ways[store])}" for store, account in accounts.items()),
        ],
        good=all(not account.violations and account.runs > spent[store] for store, account in accounts.items())
        and all(ways[store][way] > 0 for store in stores for way in EACH_WAY),
        record=options.record,
    )


def told(ways: Counter[tuple[int, int]]) -> str:
    names = ("old", "new")
    listed = ", ".join(f"{ways[a, b]} {names[a]} to {names[b]}" for a in (0, 1) for b in (0, 1))
    return f"leases that changed hands: {listed}"


if __name__ == "__main__":
    main()
