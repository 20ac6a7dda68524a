# Documents of any length packed into one long sequence, split over the ranks that torchrun starts:
#   torchrun --nproc-per-node 2 examples/pytorch/packed.py [--tokens N] [--steps N] [--strategy auto|ulysses|ring]
# position_ids begin anew with each document; attention stays inside of it, and nothing of tokens x tokens is made.  The last document is
# cut where the sequence ends; its first label and that of every other are ignored.  SPDX-License-Identifier: Apache-2.0
import argparse
import re

import autosp
import torch
import torch.distributed as dist
from transformers import MistralConfig, MistralForCausalLM


def pack(text, tokens):
    """Paragraphs one behind the other: ids, labels, places."""
    ids, labels, places = [], [], []
    while len(ids) < tokens:
        for document in re.split(rb"\n\s*\n", text):
            if document:
                ids += document
                labels += [-100, *document[1:]]
                places += range(len(document))
    return [torch.tensor(x[:tokens])[None] for x in (ids, labels, places)]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--tokens", type=int, default=512)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--strategy", default="auto")
    options.add_argument("--backend", default="inductor")
    options = options.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    with open(__file__, "rb") as f:
        ids, labels, places = pack(f.read(), options.tokens)

    config = MistralConfig(vocab_size=256, hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=8,
                           num_key_value_heads=4, sliding_window=128, max_position_embeddings=max(4096, options.tokens), use_cache=False)
    model = autosp.compile(MistralForCausalLM(config), sp=dist.get_world_size(), strategy=options.strategy, backend=options.backend)

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, options.steps + 1):
        loss = model(input_ids=ids, labels=labels, position_ids=places).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and (step == 1 or step % 5 == 0):
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
