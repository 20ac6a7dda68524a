# Hugging Face's Trainer on long sequences, each split over the ranks that torchrun starts:
#   torchrun --nproc-per-node 2 examples/pytorch/trainer.py [--tokens N] [--steps N] [--strategy auto|ulysses|ring]
# The Trainer knows of one process: each rank has all of every batch, and autosp splits it.  SPDX-License-Identifier: Apache-2.0
import argparse
import tempfile

import autosp
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Lines(torch.utils.data.Dataset):
    """Pieces of this file, a byte a token."""

    def __init__(self, tokens, n):
        with open(__file__, "rb") as f:
            text = torch.tensor(list(f.read()))
        self.rows = text.repeat(tokens * n // len(text) + 1)[: tokens * n].view(n, tokens)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--tokens", type=int, default=512)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--strategy", default="auto")
    options.add_argument("--backend", default="inductor")
    options = options.parse_args()
    dist.init_process_group("gloo")
    autosp.hide_ranks()  # the Trainer splits no batch and wraps no model
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=8,
                         num_key_value_heads=4, max_position_embeddings=max(4096, options.tokens), use_cache=False)
    model = autosp.compile(LlamaForCausalLM(config), sp=dist.get_world_size(), strategy=options.strategy, backend=options.backend)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, max_steps=options.steps, per_device_train_batch_size=1,
                                      gradient_accumulation_steps=2, learning_rate=3e-3, max_grad_norm=1.0, use_cpu=True, report_to=[],
                                      save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False)
        trainer = Trainer(model=model, args=arguments, train_dataset=Lines(options.tokens, 8))
        result = trainer.train()
    if dist.get_rank() == 0:
        print(f"step {options.steps:4d}  loss {result.training_loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
