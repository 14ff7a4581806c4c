"""Check a Redis server for a project: version, role, eviction, and the rights of the user."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from ..._core.protocol import Finding
from .errors import LOG_IN, code_of, refusal, translated, words_of
from .script import lacks_script, script_text
from .wire import ORIGIN, channel, lock_key, names_key, pack, prefix, state_key

if TYPE_CHECKING:
    from ..._core.errors import StoreError
    from .address import Place
    from .link import Link

__all__ = ["facts_of", "inspect", "unfit_for"]

SECONDS = 5.0
"""The time limit in seconds."""

OLDEST = (6, 2)
"""The oldest version that is tested."""


async def inspect(address: Place, project: str) -> tuple[Finding, ...]:
    """Return the findings about the server at `address`. Raises `StoreError` if the server does not answer.

    The rights are checked by using them, on two keys of the project that nothing else uses and that are deleted at the
    end.
    """
    with translated(address, "INFO"):
        async with asyncio.timeout(SECONDS):
            with translated(address, LOG_IN):
                link = await address.connect(prefix(project, cluster=address.cluster), SECONDS)
            try:
                (info,) = await link.call([(b"INFO",)])
                findings = _of_server(address, info)
                if not any(finding.level == "error" for finding in findings):
                    findings += await _of_rights(link, address, project)
            finally:
                link.abort()
    return tuple(findings)


def facts_of(info: bytes) -> dict[str, str]:
    """Return the values of INFO by name."""
    lines = info.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def unfit_for(address: Place, facts: dict[str, str]) -> StoreError | None:
    """Return why such a server cannot keep leases, whatever it answers."""
    if facts.get("role") == "slave":
        return refusal(address, "READONLY")
    if facts.get("cluster_enabled") == "1" and not address.cluster:
        return refusal(address, "CROSSSLOT")
    return None


def _of_server(address: Place, info: Any) -> list[Finding]:
    if not isinstance(info, bytes):
        return [
            Finding("warning", f"INFO is not allowed ({words_of(info)}): version and eviction policy are not known")
        ]
    facts = facts_of(info)
    findings = [_version(facts)]
    unfit = unfit_for(address, facts)
    if unfit is not None:
        findings.append(Finding("error", str(unfit)))
    if facts.get("connected_slaves", "0") != "0":
        cut_off = "a primary that is cut off from its replicas goes on granting leases"
        if facts.get("redis_version", "").startswith("6."):
            text = f"Redis before 7.0 does not apply min-replicas-to-write to scripts: {cut_off}; use a later version"
            findings.append(Finding("warning", text))
        elif "min_slaves_good_slaves" not in facts:  # the server shows the number only if the setting is on
            findings.append(Finding("warning", f"min-replicas-to-write is 0: {cut_off}; write 1"))
    policy = facts.get("maxmemory_policy", "")
    bounded = facts.get("maxmemory", "0") != "0"
    if policy.startswith("allkeys-") or (bounded and policy.startswith("volatile-")):
        text = f"maxmemory-policy is {policy}: a lease may be thrown away while it is held; write noeviction"
        findings.append(Finding("warning", text))
    elif policy:
        findings.append(Finding("ok", f"maxmemory-policy is {policy}{'' if bounded else ', without a limit'}"))
    return findings


def _version(facts: dict[str, str]) -> Finding:
    kind = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts.get("redis_version") or "of an unknown version"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        return Finding("warning", f"{kind} {version} is older than 6.2, the oldest that is tested")
    return Finding("ok", f"{kind} {version}")


async def _of_rights(link: Link, address: Place, project: str) -> list[Finding]:
    from redis.exceptions import ResponseError

    named, job = prefix(project, cluster=address.cluster), f"check.{secrets.token_hex(4)}"
    keys = (lock_key(named, job).encode(), state_key(named, job).encode())
    text = script_text("rights.lua")
    digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    arguments = (b"2", *keys, channel(named).encode())
    script, called, pinged, names = await link.call(
        [
            (b"EVAL", text, *arguments),
            (b"EVALSHA", digest, *arguments),
            (b"PING",),
            (b"SMEMBERS", names_key(named).encode()),
        ]
    )
    if isinstance(script, Exception):
        raise refusal(address, script, "EVAL", project)
    findings: list[Finding] = []
    for command, why in zip(script[::2], script[1::2], strict=True):
        said = ORIGIN.sub("", why.decode(errors="replace"))
        if code_of(said) != "WRONGTYPE":  # a consequence of an earlier refusal
            findings.append(Finding("error", str(refusal(address, said, command.decode(), project))))
    for command, said in (("EVALSHA", called), ("PING", pinged)):
        if isinstance(said, Exception) and not lacks_script(said):
            findings.append(Finding("error", str(refusal(address, said, command))))
    try:
        await link.send(pack((b"SUBSCRIBE", channel(named).encode())))
        if await link.read(SECONDS) is None:
            raise TimeoutError
    except ResponseError as error:  # other errors of the connection are for the caller
        findings.append(Finding("error", str(refusal(address, error, "SUBSCRIBE", project))))
    if not findings:
        findings.append(Finding("ok", "the user has all rights that are needed"))
    if isinstance(names, Exception) and code_of(names) == "NOPERM":
        findings.append(Finding("warning", f"`singletonjob status` will fail: {refusal(address, names, 'SMEMBERS')}"))
    return findings
