"""Architectures of `transformers` with small random weights, on both sides of the export.

`python docs/benchmarks/architectures.py [--verify] [NAME …]`; needs `pip install transformers`.

Each model is captured with torch.export and exported with torch's own ONNX exporter. The shipped
opset `activations` is planned on the program and on the ONNX model; the counts are printed side by
side, and have to be equal. With `--verify` both are converted and proven: sites, outputs, and on
the program's side gradients. Nothing is downloaded: only configurations are used.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

import oprep
from oprep.converters.programs.onnx_export import export_onnx

OPSET = "activations"
Call = tuple[torch.nn.Module, Mapping[str, Any]]

IDS = (torch.arange(16).reshape(2, 8) * 7) % 90 + 3
PIXELS = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)


def bert() -> Call:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=100, intermediate_size=64, **sizes)
    return BertModel(config), {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}


def gpt2() -> Call:
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=2, **ends)
    given = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "use_cache": False}
    return GPT2LMHeadModel(config), given


def llama() -> Call:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2)  # fmt: skip
    return LlamaForCausalLM(config), {"input_ids": IDS, "use_cache": False}


def t5() -> Call:
    from transformers import T5Config, T5Model

    config = T5Config(vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2,
                      feed_forward_proj="gated-gelu")  # fmt: skip
    given = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4], "use_cache": False}
    return T5Model(config), given


def vit() -> Call:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                       intermediate_size=64, image_size=32, patch_size=8)  # fmt: skip
    return ViTModel(config), {"pixel_values": PIXELS}


def clip() -> Call:
    from transformers import CLIPConfig, CLIPModel

    text = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "eos_token_id": 99, "bos_token_id": 0}  # fmt: skip
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 2, "image_size": 32, "patch_size": 8}  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    return CLIPModel(config), {"input_ids": IDS, "pixel_values": PIXELS,
                               "attention_mask": torch.ones_like(IDS)}  # fmt: skip


def whisper() -> Call:
    from transformers import WhisperConfig, WhisperModel

    ends = {"pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1}
    config = WhisperConfig(vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2,
                           encoder_attention_heads=2, decoder_attention_heads=2,
                           encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8,
                           max_source_positions=16, max_target_positions=16, **ends)  # fmt: skip
    mel = torch.linspace(-1, 1, 2 * 8 * 32).reshape(2, 8, 32)
    given = {"input_features": mel, "decoder_input_ids": IDS[:, :4], "use_cache": False}
    return WhisperModel(config), given


def mamba() -> Call:
    from transformers import MambaConfig, MambaModel

    config = MambaConfig(vocab_size=100, hidden_size=16, state_size=4, num_hidden_layers=2)
    return MambaModel(config), {"input_ids": IDS, "use_cache": False}


def efficientnet() -> Call:
    from transformers import EfficientNetConfig, EfficientNetModel

    config = EfficientNetConfig(image_size=32, hidden_dim=320, width_coefficient=0.25,
                                depth_coefficient=0.25)  # fmt: skip
    return EfficientNetModel(config), {"pixel_values": PIXELS}


def swin() -> Call:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2],
                        window_size=4)  # fmt: skip
    return SwinModel(config), {"pixel_values": PIXELS}


MODELS: tuple[Callable[[], Call], ...] = (
    bert, gpt2, llama, t5, vit, clip, whisper, mamba, efficientnet, swin,
)  # fmt: skip


def exported(module: torch.nn.Module, given: Mapping[str, Any]) -> tuple[ExportedProgram, Any]:
    """Capture a module, and export the program.

    Results are plain tuples: a fresh process does not know the output classes of a library.
    """
    given = {**given, "return_dict": False}
    program = torch.export.export(module, (), given, strict=False)
    return program, export_onnx(program).proto


def counts(model: Any) -> Counter[str]:
    """Count the sites of each rule."""
    try:
        report = oprep.convert(model, opset=OPSET, dry_run=True)
    except oprep.OprepError as error:
        if error.exit_code != oprep.ExitCode.EXPECTATION:
            raise
        return Counter()  # nothing matched
    return Counter({rule.rule: len(rule.sites) for rule in report.rules if rule.sites})


def proven(model: Any) -> str:
    """Convert and prove a model; give the outcome in words."""
    try:
        report = oprep.convert(model, opset=OPSET)
    except oprep.OprepError as error:
        return "\n".join(["failed", *str(error).splitlines()])
    kinds = Counter(check.check for check in report.checks)
    return f"{report.status}: " + ", ".join(f"{kinds[name]} {name}" for name in sorted(kinds))


def shown(found: Mapping[str, int]) -> str:
    """Write counts on one line."""
    return ", ".join(f"{rule} {found[rule]}" for rule in sorted(found)) or "nothing"


def study(build: Callable[[], Call], *, verify: bool) -> bool:
    """Print one architecture; tell whether both sides agree."""
    torch.manual_seed(0)
    module, given = build()
    module.eval()
    began = time.perf_counter()
    program, model = exported(module, given)
    took = time.perf_counter() - began
    on_program, on_onnx = counts(program), counts(model)
    equal = on_program == on_onnx
    print(f"{build.__name__:13} {'equal' if equal else 'DIFFERENT'}: {shown(on_program)}"
          + ("" if equal else f" | ONNX: {shown(on_onnx)}"), end="")  # fmt: skip
    gates = sum(str(node.target) == "aten.sigmoid.default" for node in program.graph.nodes)
    print(f"; {gates} plain sigmoids; capture and export {took:.1f} s", flush=True)
    good = equal
    sides = (("program", program), ("ONNX", model))
    for side, what in sides if verify and on_program else ():
        outcome = proven(what)
        good = good and outcome.startswith("verified")
        print(f"    {side}: {outcome}", flush=True)
    return good


def main() -> None:
    """Study the architectures that were named, else all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="architectures, all where none is named")
    parser.add_argument("--verify", action="store_true", help="convert and prove both sides")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    chosen = [item for item in MODELS if not options.names or item.__name__ in options.names]
    outcomes = []
    for item in chosen:
        try:
            outcomes.append(study(item, verify=options.verify))
        except Exception as error:
            outcomes.append(False)
            first = str(error).strip().splitlines()
            print(f"{item.__name__:13} failed: {type(error).__name__}: {first[0] if first else ''}")
    sys.exit(0 if all(outcomes) else 1)


if __name__ == "__main__":
    main()
