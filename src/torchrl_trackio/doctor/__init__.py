"""Tells whether logging works here, and why it does not."""

from __future__ import annotations

import argparse
import io
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial

from torchrl_trackio import __version__
from torchrl_trackio.doctor import checks, roundtrip
from torchrl_trackio.doctor.checks import FAILED, WARNING, Check
from torchrl_trackio.doctor.storage import storage
from torchrl_trackio.errors import TrackioWarning

Diagnosis = dict[str, list[Check]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check everything, print the findings, and return the exit status: 1 if a check is ``FAILED``, otherwise 0.

    Args:
        arguments: those of the command line; by default, of this process.
    """
    parser = argparse.ArgumentParser("torchrl-trackio", description="Tell whether logging to Trackio works here.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--version", action="version", version=__version__)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an orderly end, which leaves nothing behind
    diagnosis = diagnose()
    text = as_json(diagnosis) if options.json else as_text(diagnosis)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    return 1 if _count(diagnosis, FAILED) else 0


def diagnose() -> Diagnosis:
    """Every section's checks; what the checked packages print is dropped."""
    with redirect_stdout(io.StringIO()), roundtrip.under_way() as trip:  # while the packages are imported here
        sections: dict[str, Callable[[], Iterable[Check]]] = {
            "Versions": checks.versions,
            "Discovery": checks.discovery,
            "Storage": partial(storage, trip),
            "Encoders": checks.encoders,
            "Round trip": partial(checks.round_trip, trip),
            "Dashboard": checks.dashboard,
        }
        return {title: _run(title, section) for title, section in sections.items()}


def _run(title: str, section: Callable[[], Iterable[Check]]) -> list[Check]:
    """The section's checks, and one more for what it raises, and for each of this package's warnings."""
    found: list[Check] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found.extend(section())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other sections are still of use
            found.append(Check(title.lower(), FAILED, roundtrip.said(error)))
    ours = dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, TrackioWarning))
    return found + [Check("torchrl-trackio", WARNING, text) for text in ours]


def as_text(diagnosis: Diagnosis) -> str:
    """One line a check, with its advice below."""
    lines = [f"torchrl-trackio {__version__}"]
    for title, found in diagnosis.items():
        lines += ["", title]
        for check in found:
            lines.append(f"  {check.status:<8} {check.name}: {check.text}")
            lines += [f"           {check.advice}"] if check.advice else []
    return "\n".join([*lines, "", _verdict(diagnosis)])


def _verdict(diagnosis: Diagnosis) -> str:
    failed, warned = _count(diagnosis, FAILED), _count(diagnosis, WARNING)
    counts = f"{failed} FAILED, {warned} warning{'s' * (warned != 1)}"
    return f"Logging works here: {counts}." if not failed else f"Logging does not work here as it should: {counts}."


def as_json(diagnosis: Diagnosis) -> str:
    """One JSON object: the version, whether nothing failed, and the checks of each section."""
    sections = {title: [asdict(check) for check in found] for title, found in diagnosis.items()}
    return json.dumps({"version": __version__, "ok": not _count(diagnosis, FAILED), "sections": sections}, indent=2)


def _count(diagnosis: Diagnosis, status: str) -> int:
    return sum(check.status == status for found in diagnosis.values() for check in found)
