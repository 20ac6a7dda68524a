# A plain training loop on a long sequence, split over the ranks that torchrun starts:
#   torchrun --nproc-per-node 2 examples/pytorch/train.py [--tokens N] [--steps N] [--strategy auto|ulysses|ring]
# The model is an unchanged Hugging Face one; one line makes it sequence-parallel.  SPDX-License-Identifier: Apache-2.0
import argparse
import os

import autosp
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM


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
        text = torch.tensor(list(f.read()))
    ids = text.repeat(options.tokens // len(text) + 1)[: options.tokens][None]

    config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=8,
                         num_key_value_heads=4, max_position_embeddings=max(4096, options.tokens), use_cache=False)
    model = LlamaForCausalLM(config)
    model = autosp.compile(model, sp=dist.get_world_size(), strategy=options.strategy, backend=options.backend)

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, options.steps + 1):
        loss = model(input_ids=ids, labels=ids).loss  # every rank passes the whole batch; this is the global loss
        loss.backward()  # and these are the global gradients
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and (step == 1 or step % 5 == 0):
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
    if dist.get_rank() == 0 and "SAVE" in os.environ:
        model.save_pretrained(os.environ["SAVE"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
