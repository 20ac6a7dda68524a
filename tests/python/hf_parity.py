# Checkpoints go both ways between autosp and Hugging Face transformers: each loads what the other
# saved and gives the same loss on the same bytes within 1e-5.
#   python3 hf_parity.py AUTOSP [VENV]     makes the virtual environment (torch for CPUs, transformers) when it is not there
# Neighbours: tests/cli (what needs Python alone), src/io/hfconfig.c, src/train/checkpoint.c (what is tested).
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

import environment

BOUND = 1e-5
SEQ = 192
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
# What all have, under the names of each family.
SIZES = dict(vocab_size=256, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=96, max_position_embeddings=512, initializer_range=0.2, tie_word_embeddings=False)
GPT2_SIZES = dict(vocab_size=256, n_embd=60, n_layer=2, n_head=4, n_positions=256, initializer_range=0.2,
                  attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
# The models that go both ways: family and what differs.  gemma2 widens its scores, so its caps are small.
MODELS = {
    "grouped heads": ("llama", {}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "wide heads": ("llama", {"head_dim": 24, "num_key_value_heads": 1}),
    "llama3 rope": ("llama", {"rope_parameters": LLAMA3, "rope_theta": 500000.0}),
    "biases and gelu": ("llama", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "mistral": ("mistral", {"sliding_window": 50}),
    "mistral without a window": ("mistral", {"sliding_window": None, "head_dim": 24}),
    "qwen2": ("qwen2", {}),
    "qwen2, late windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 33, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 24}),
    "gemma2": ("gemma2", {"head_dim": 24, "sliding_window": 40, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 8.0,
                          "final_logit_softcapping": 6.0, "initializer_range": 0.1, "tie_word_embeddings": True}),
    "gpt2": ("gpt2", {}),
    "gpt2, narrow and untied": ("gpt2", {"n_inner": 40, "tie_word_embeddings": False, "activation_function": "relu"}),
}


def autosp(*args):
    p = subprocess.run([sys.argv[1], *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        sys.exit(f"autosp {' '.join(map(str, args))}: exit {p.returncode}\n{p.stderr}")
    return [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]


def autosp_loss(model, data):
    """Losses of the whole file as one sequence, on one rank and on two."""
    records = autosp("verify", "--model", model, "--data", data, "--seq", SEQ, "--ranks", 2, "--threads", 1, "--json", "-")
    verify = next(r for r in records if r["record"] == "verify")
    return verify["loss_1"], verify["loss_p"]


def transformers_loss(folder, data):
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    for key in "missing_keys", "unexpected_keys", "mismatched_keys":
        assert not info[key], f"{folder}: {key} {info[key]}"
    with open(data, "rb") as f:
        ids = torch.tensor([list(f.read())])
    with torch.no_grad():
        return model(input_ids=ids, labels=ids).loss.item()


def save_model(folder, family, changes, dtype):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(5)
    config = AutoConfig.for_model(family, **{**(GPT2_SIZES if family == "gpt2" else SIZES), **changes})
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # norms and biases start all alike: a mistake with them would not show
        for p in model.parameters():
            if p.ndim == 1:
                p += 0.2 * torch.randn_like(p)
    model.to(dtype).save_pretrained(folder)


def compare(what, folder, data):
    theirs = transformers_loss(folder, data)
    ok = True
    for ranks, ours in zip((1, 2), autosp_loss(folder, data)):
        same = abs(ours - theirs) <= BOUND
        ok &= same
        print(f"{what:45s} {ranks} rank{'s' if ranks > 1 else ' '} {ours:.7f}, transformers {theirs:.7f}: "
              f"{'ok' if same else 'DIFFERENT'}", flush=True)
    return ok


def check_all(at):
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    ok = True
    text, data = os.path.join(at, "text.txt"), os.path.join(at, "line.txt")
    with open(__file__, "rb") as f:
        source = f.read()
    with open(text, "wb") as f:
        f.write(source)
    with open(data, "wb") as f:
        f.write(source[:SEQ])
    for i, (name, (family, changes)) in enumerate(MODELS.items()):
        for dtype in torch.float32, torch.bfloat16:
            saved, out = os.path.join(at, f"saved-{i}-{dtype}"), os.path.join(at, f"trained-{i}-{dtype}")
            kind = str(dtype).split(".")[1]
            save_model(saved, family, changes, dtype)
            ok &= compare(f"{name}, saved by transformers as {kind}", saved, data)
            autosp("train", "--model", saved, "--data", text, "--seq", SEQ, "--ranks", 2, "--threads", 1, "--steps", 5,
                   "--lr", 3e-3, "--out", out)
            ok &= compare(f"{name}, from {kind}, then trained here", os.path.join(out, "step-000005"), data)
    return ok


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: hf_parity.py AUTOSP [VENV]")
    environment.enter(sys.argv[2] if len(sys.argv) > 2 else None)
    with tempfile.TemporaryDirectory(prefix="autosp-") as at:
        sys.exit(0 if check_all(at) else 1)


if __name__ == "__main__":
    main()
