"""The models of the THC paper, trained on your own copy of the data:

    torchrun --nproc_per_node 4 python/examples/recipes.py vgg16 --data imagenet
    torchrun --nproc_per_node 4 python/examples/recipes.py resnet50 --data cifar100 --size 32 --rate 0.1
    torchrun --nproc_per_node 4 python/examples/recipes.py gpt2 --data SST-2 --pretrained gpt2 --rate 3e-5
    torchrun --nproc_per_node 4 python/examples/recipes.py roberta --data SST-2 --pretrained roberta-base --rate 1e-5

Images are files in folders of their classes: DATA/train/CLASS/*.jpg and DATA/val/CLASS/*.jpg, as of ImageNet. Sentences are those of GLUE's SST-2:
DATA/train.tsv and DATA/dev.tsv, with a line `sentence<TAB>label` first. `--pretrained` is a folder with model and tokenizer as transformers saves
them, or their name on the hub. `--method thc-paper` is THC as published, and `--without-thc` averages by the process group.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import thc.torch

try:
    import numpy as np
    import transformers
    from PIL import Image
except ImportError as missing:
    sys.exit(f"this example needs transformers and pillow: pip install transformers pillow ({missing})")

CHANNELS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # of VGG16; 0 is a pooling


class Images(Dataset[Any]):
    """Files in folders of their classes, cut to squares."""

    def __init__(self, folder: Path, size: int) -> None:
        self.classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        self._files = [(path, label) for label, name in enumerate(self.classes) for path in sorted((folder / name).iterdir())]
        self._size, self._mirrors = size, folder.name == "train"

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._files[index]
        image = Image.open(path).convert("RGB")
        side, place = min(image.size), [(length - min(image.size)) // 2 for length in image.size]
        image = image.resize((self._size, self._size), box=(*place, place[0] + side, place[1] + side))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 127.5 - 1
        return pixels.flip(2) if self._mirrors and torch.rand(()) < 0.5 else pixels, label


def sentences(file: Path, tokenizer: Any) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    """Tokens, their mask, and the label of each line."""
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = tokenizer([row["sentence"] for row in rows], padding="max_length", truncation=True, max_length=128, return_tensors="pt")
    return list(zip(found["input_ids"], found["attention_mask"], [int(row["label"]) for row in rows]))


def vgg16(classes: int, size: int) -> nn.Module:
    layers, before = list[nn.Module](), 3
    for after in CHANNELS:
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()] if after else [nn.MaxPool2d(2)]
        before = after or before
    for inputs in (512 * (size // 32) ** 2, 4096):
        layers += [nn.Flatten(), nn.Linear(inputs, 4096), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, classes))


def load(arguments: argparse.Namespace) -> tuple[nn.Module, Any, Any, Callable[[nn.Module, Any], torch.Tensor]]:
    """The model, what it is trained on and what not, and the scores of a batch."""
    data, pretrained = arguments.data, arguments.pretrained
    if arguments.model in ("vgg16", "resnet50"):
        train, held_out = Images(data / "train", arguments.size), Images(data / "val", arguments.size)
        if arguments.model == "vgg16":
            return vgg16(len(train.classes), arguments.size), train, held_out, lambda model, batch: model(batch[0])
        config = transformers.ResNetConfig(num_labels=len(train.classes))  # 50 layers
        return transformers.ResNetForImageClassification(config), train, held_out, lambda model, batch: model(batch[0]).logits
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained)
    if tokenizer.pad_token is None:  # GPT-2
        tokenizer.pad_token = tokenizer.eos_token
    model = transformers.AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    model.config.pad_token_id = tokenizer.pad_token_id
    train, held_out = sentences(data / "train.tsv", tokenizer), sentences(data / "dev.tsv", tokenizer)
    return model, train, held_out, lambda model, batch: model(input_ids=batch[0], attention_mask=batch[1]).logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["vgg16", "resnet50", "gpt2", "roberta"])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data")
    parser.add_argument("--pretrained", help="model and tokenizer of gpt2 and roberta: a folder, or a name on the hub (the model's own name)")
    parser.add_argument("--size", type=int, default=224, help="pixels of an image's side (%(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="%(default)s")
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--batch", type=int, default=32, help="examples per process and step (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.01, help="step size, of SGD with momentum for images and of AdamW for text (%(default)s)")
    parser.add_argument("--method", default="default", help='of thc.torch.Compression: "thc-paper" is THC as published')
    parser.add_argument("--without-thc", action="store_true", help="average by the process group instead")
    arguments = parser.parse_args()
    arguments.pretrained = arguments.pretrained or {"gpt2": "gpt2", "roberta": "roberta-base"}.get(arguments.model)

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    whole, train, held_out, scores = load(arguments)
    model = DistributedDataParallel(whole.to(device))
    torch.manual_seed(1 + dist.get_rank())  # each rank mirrors images and drops out by its own
    if not arguments.without_thc:
        model = thc.torch.wrap(model, compression=thc.torch.Compression(method=arguments.method))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), arguments.rate)
    if isinstance(train, Images):
        optimizer = torch.optim.SGD(model.parameters(), arguments.rate, momentum=0.9, weight_decay=1e-4)
    sampler: DistributedSampler[Any] = DistributedSampler(train)
    batches = DataLoader(train, arguments.batch, sampler=sampler, num_workers=4 if device.type == "cuda" else 0, drop_last=True)
    step = 0
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for *inputs, labels in batches:
            if step == arguments.steps:
                break
            loss = nn.functional.cross_entropy(scores(model, [part.to(device) for part in inputs]), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    whole.eval()
    totals = torch.zeros(3, device=device)
    with torch.no_grad():
        for *inputs, labels in DataLoader(held_out, arguments.batch, sampler=DistributedSampler(held_out, shuffle=False)):
            found, labels = scores(whole, [part.to(device) for part in inputs]), labels.to(device)
            loss = nn.functional.cross_entropy(found, labels, reduction="sum")
            totals += torch.stack([loss, (found.argmax(1) == labels).sum(), torch.ones_like(labels).sum()])
    dist.all_reduce(totals)
    if dist.get_rank() == 0:
        print(f"{step} steps; on what was not trained on: loss {totals[0] / totals[2]:.4f}, accuracy {100 * totals[1] / totals[2]:.1f} %")
        if not arguments.without_thc:
            print(thc.torch.hook_of(model).group.stats().summary(dist.get_world_size()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
