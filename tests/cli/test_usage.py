from __future__ import annotations

from pathlib import Path

import pytest

WRONG = {
    "no_rules": ("convert", "m.onnx", "-o", "o.onnx"),
    "no_output": ("convert", "m.onnx", "-r", "r.toml"),
    "model_on_stdin": ("convert", "-", "-r", "r.toml", "-o", "o.onnx"),
    "verify_on_stdin": ("verify", "m.onnx", "-"),
    "list_on_stdin": ("list-ops", "-"),
    "rules_without_model": ("list-ops", "-r", "r.toml"),
    "report_suffix": ("verify", "a.onnx", "b.onnx", "--report", "r.pdf"),
    "verdict": ("verify", "a.onnx", "b.onnx", "--accept", "fine"),
    "verdict_pass": ("verify", "a.onnx", "b.onnx", "--accept", "pass"),
    "size": ("verify", "a.onnx", "b.onnx", "--max-bytes", "lots"),
    "size_zero": ("verify", "a.onnx", "b.onnx", "--max-bytes", "0GB"),
    "timeout": ("verify", "a.onnx", "b.onnx", "--timeout", "0"),
    "timeout_nan": ("verify", "a.onnx", "b.onnx", "--timeout", "nan"),
    "rtol": ("verify", "a.onnx", "b.onnx", "--max-rtol", "-1"),
    "atol": ("verify", "a.onnx", "b.onnx", "--max-atol", "inf"),
    "seed": ("verify", "a.onnx", "b.onnx", "--seed", "-3"),
    "seed_word": ("verify", "a.onnx", "b.onnx", "--seed", "x"),
    "option": ("verify", "a.onnx", "b.onnx", "--tolerence", "1"),
    "command": ("conver", "a.onnx"),
    "missing_argument": ("verify", "a.onnx"),
    "extra_argument": ("verify", "a.onnx", "b.onnx", "c.onnx"),
    "output_to_stdout": ("convert", "m.onnx", "-r", "r.toml", "-o", "-"),
    "output_empty": ("convert", "m.onnx", "-r", "r.toml", "-o", ""),
    "data_root": ("list-ops", "m.onnx", "--external-data-root", "no-such-folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_exit_2_with_one_message(case, oprep, pipeline, golden):
    calls = pipeline(AssertionError("the pipeline must not be called"))
    outcome = oprep(*WRONG[case])
    assert (outcome.code, outcome.out, calls) == (2, "", [])
    golden(f"usage_{case}.txt", outcome.err)


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_has_the_form_of_a_message(case, oprep):
    first, *rest = oprep(*WRONG[case]).err.splitlines()
    assert first.startswith("error: ")
    assert not first.endswith(".")
    assert first[7:8] == first[7:8].lower()
    assert len(rest) == 1
    assert rest[0].startswith("  = help: ")


def test_every_option_reaches_the_pipeline(oprep, pipeline, tmp_path, monkeypatch):
    from sample_reports import VERIFIED

    calls = pipeline(VERIFIED)
    words = """convert m.onnx -r a.toml --rules b.toml --opset activations -o out.onnx --seed 7
        --timeout 9 --dry-run --plan p.json --plan-out q.json --no-verify --accept no-evidence
        --accept fail --max-rtol 1e-3 --max-atol 0 --inputs i.npz --inputs j --save-inputs d
        --max-bytes 2GB --external-data-root . --in-place --strip-traces --timings --no-code
        --report r.json --report s.md --weights w.pt:model --trust-model --capture trace
        --dynamic x:0=batch[1:64] --dynamic y:1 --no-grad --to aoti --keep-traces --bundle"""
    monkeypatch.chdir(tmp_path)
    assert oprep(*words.split()).code == 0
    (call,) = calls
    assert call.pop("progress") is None
    assert call == {
        "models": (Path("m.onnx"),),
        "rules": [Path("a.toml"), Path("b.toml")],
        "opset": ["activations"],
        "output": Path("out.onnx"),
        "inputs": [Path("i.npz"), Path("j")],
        "seed": 7,
        "timeout": 9.0,
        "verify": False,
        "dry_run": True,
        "plan": Path("p.json"),
        "plan_out": Path("q.json"),
        "accept": ["no evidence", "fail"],
        "max_rtol": 1e-3,
        "max_atol": 0.0,
        "max_bytes": 2_000_000_000,
        "external_data_root": Path(),
        "in_place": True,
        "strip_traces": True,
        "save_inputs": Path("d"),
        "no_code": True,
        "timings": True,
        "also_written": [Path("r.json"), Path("s.md")],
        "weights": Path("w.pt:model"),
        "trust_model": True,
        "capture": "trace",
        "dynamic": ["x:0=batch[1:64]", "y:1"],
        "grad": False,
        "to": "aoti",
        "keep_traces": True,
        "bundle": True,
    }


def test_verify_and_list_ops_pass_their_options_on(oprep, pipeline):
    from sample_reports import OPS, VERIFIED

    calls = pipeline(VERIFIED)
    oprep("verify", "a.onnx", "b.onnx", "--provenance", "--max-bytes", "1KiB", "--seed", "3")
    oprep("verify", "a.pt2", "b.pt2", "-r", "r.toml", "--weights", "w.pt", "--grad", "--no-code")
    assert calls[0]["models"] == (Path("a.onnx"), Path("b.onnx"))
    assert (calls[1]["rules"], calls[1]["weights"]) == ([Path("r.toml")], Path("w.pt"))
    assert (calls[0]["grad"], calls[1]["grad"], calls[1]["no_code"]) == (None, True, True)
    assert (calls[0]["provenance"], calls[0]["max_bytes"], calls[0]["seed"]) == (True, 1024, 3)
    calls = pipeline(OPS)
    oprep("list-ops", "a.onnx", "-r", "r.toml", "--opset", "activations", "--no-code")
    oprep("list-ops", "m.py:build", "--inputs", "i.npz", "--dynamic", "x:0", "--timeout", "5")
    assert calls[1]["models"] == (Path("m.py:build"),)
    assert (calls[1]["inputs"], calls[1]["dynamic"]) == ([Path("i.npz")], ["x:0"])
    assert calls[1]["timeout"] == 5.0
    assert calls[0]["models"] == (Path("a.onnx"),)
    assert (calls[0]["rules"], calls[0]["opset"]) == ([Path("r.toml")], ["activations"])
    assert calls[0]["no_code"] is True


def test_the_pipeline_takes_every_keyword_that_the_commands_give(oprep, monkeypatch):
    import inspect

    from oprep.converters import listing, pipeline

    for module, name, words in (
        (pipeline, "convert", ("convert", "m.onnx", "-r", "r.toml", "-o", "o.onnx")),
        (pipeline, "verify", ("verify", "m.onnx", "n.onnx")),
        (listing, "list_ops", ("list-ops", "m.onnx")),
    ):
        signature = inspect.signature(getattr(module, name))
        bound: list[inspect.BoundArguments] = []

        def take(*models, _signature=signature, _bound=bound, **keywords):
            _bound.append(_signature.bind(*models, **keywords))
            raise KeyboardInterrupt

        monkeypatch.setattr(module, name, take)
        oprep(*words)
        assert bound, name


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1", 1), ("2GB", 2 * 10**9), ("1.5kb", 1500), ("512MiB", 512 * 2**20), ("3 T", 3 * 10**12)],
)
def test_sizes_are_decimal_or_binary(text, bytes_):
    from oprep.cli.values import size

    assert size(text) == bytes_
