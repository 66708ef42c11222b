"""A crash or a hang of an op is a verdict that names it; other sites are proven all the same."""

from __future__ import annotations

from torch_child import ROOT, TESTS

from oprep.converters.program_proof import ProofOptions, prove_program
from oprep.converters.program_sides import Opening
from oprep.converters.runner import Child


def start():
    return Child(readable=(ROOT,), import_from=(TESTS,))


def proof_of(kind, seconds, *, sites, monkeypatch):
    monkeypatch.setattr("oprep.converters.program_proof.GRACE", 0.0)
    options = ProofOptions(seconds=seconds, start_original=start, start_artifact=start, grad=False)
    payload = {"kind": kind, "sites": sites}
    openings = [Opening(f"program_openings:{side}", payload) for side in ("original", "artifact")]
    return prove_program(*openings, options)


def of_check(proof, check):
    return [item for item in proof.checks if item.check == check]


def test_what_kills_or_hangs_the_process_is_the_verdict_of_its_site_alone(monkeypatch):
    proof = proof_of("crash_hang", 4.0, sites=True, monkeypatch=monkeypatch)
    sites = of_check(proof, "sites_close")
    assert [str(item.verdict) for item in sites] == ["pass", "crashed", "timed out"]
    assert sites[1].detail.startswith("the replacement crashed: ended by SIGABRT")
    assert sites[2].detail.startswith("the replacement timed out: no result within 4 s")
    assert all("(`opening::crash_hang`)" in item.detail for item in sites[1:])
    (signature,), (output,) = of_check(proof, "signature_kept"), of_check(proof, "outputs_close")
    for check in (signature, output):  # an artifact that does not load hides no site
        assert check.verdict == "cannot run"
        assert check.detail.startswith("the candidate cannot run here: ")
        assert "failed to resolve acme.gelu to an operator" in check.detail


def test_what_kills_the_artifact_is_named(monkeypatch):
    proof = proof_of("crash", 120.0, sites=False, monkeypatch=monkeypatch)
    (output,) = of_check(proof, "outputs_close")
    assert output.verdict == "crashed"
    assert output.detail.startswith("the candidate crashed: ended by SIGABRT")
    assert "at `opening::crash` at `relu_1`" in output.detail


def test_a_process_that_ran_before_goes_on_after_the_proof():
    from oprep.converters.program_sides import Side

    child = start()
    assert child.call("oprep.converters.programs.proving:close_programs", {}).outcome == "ok"
    side = Side(lambda: child, Opening("program_openings:nothing"), "the original", 60.0)
    side.open()
    side.close()
    assert child.running
    child.close()
    own = start()
    side = Side(lambda: own, Opening("program_openings:nothing"), "the original", 60.0)
    side.open()
    side.close()
    assert not own.running
