"""The parameters of well-known models, layer by layer, and what each layer has to compute: no weights and no data.

A multiply-add counts as two operations, a backward pass as twice the forward pass. Normalizations and activations count as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """Parameters whose gradients are ready together."""

    name: str
    shapes: tuple[Shape, ...]
    operations: float
    """Of the forward pass, for one example."""


@dataclass(frozen=True)
class Model:
    """Layers in the order of the forward pass."""

    about: str
    layers: tuple[Layer, ...]
    examples: int
    """Of a rank's step."""
    rate: float
    """Operations a second of the accelerator that is stood in for."""

    @property
    def parameters(self) -> int:
        return sum(size(shape) for layer in self.layers for shape in layer.shapes)

    def forward(self, layer: Layer) -> float:
        """Seconds of a layer's forward pass."""
        return self.examples * layer.operations / self.rate

    def backward(self, layer: Layer) -> float:
        """Seconds of its backward pass."""
        return 2 * self.forward(layer)

    @property
    def seconds(self) -> float:
        """Of a step's computing."""
        return sum(self.forward(layer) + self.backward(layer) for layer in self.layers)


def size(shape: Shape) -> int:
    """Coordinates of a tensor."""
    product = 1
    for extent in shape:
        product *= extent
    return product


def _linear(name: str, width: int, out: int, tokens: float) -> Layer:
    return Layer(name, ((out, width), (out,)), 2 * width * out * tokens)


def _norm(name: str, width: int) -> Layer:
    return Layer(name, ((width,), (width,)), 0.0)


def _block(at: int, width: int, tokens: int, seen: float, joined: bool) -> list[Layer]:
    """Of a transformer. A token looks at ``seen`` others; ``joined``: queries, keys and values are one matrix."""
    looks = 2 * 2 * seen * width * tokens
    parts = [("qkv", 3 * width)] if joined else [("q", width), ("k", width), ("v", width)]
    attention = [_linear(f"{at}.{part}", width, out, tokens) for part, out in parts]
    out = _linear(f"{at}.projection", width, width, tokens)
    return [
        _norm(f"{at}.norm1", width), *attention, Layer(out.name, out.shapes, out.operations + looks),
        _norm(f"{at}.norm2", width), _linear(f"{at}.wide", width, 4 * width, tokens), _linear(f"{at}.narrow", 4 * width, width, tokens),
    ]  # fmt: skip


def bert(part: int) -> Model:
    """BERT-Large, 128 tokens an example, or a part of it: as much less of layers and of vocabulary."""
    width, tokens, vocabulary = 1024, 128, 30522 // part
    layers = [Layer("embeddings", ((vocabulary, width), (512 // part, width), (2, width), (width,), (width,)), 0.0)]
    for at in range(24 // part):
        layers += _block(at, width, tokens, tokens, False)
    masked = 0.15 * tokens
    head = _linear("head", width, width, masked)
    # The last layer is the embeddings once more, whose gradients are ready with those.
    layers += [Layer(head.name, (*head.shapes, (width,), (width,), (vocabulary,)), head.operations + 2 * width * vocabulary * masked)]
    return Model("BERT-Large, 32 sequences of 128 tokens a rank", tuple(layers), 32, 100e12)


def gpt2(part: int) -> Model:
    """GPT-2 of 124 M parameters, 1024 tokens an example, or a part of it."""
    width, tokens, vocabulary = 768, 1024, 50257 // part
    layers = [Layer("embeddings", ((vocabulary, width), (1024 // part, width)), 0.0)]
    for at in range(12 // part):
        layers += _block(at, width, tokens, tokens / 2, True)
    layers += [Layer("head", ((width,), (width,)), 2 * width * vocabulary * tokens)]
    return Model("GPT-2 (124 M), 8 sequences of 1024 tokens a rank", tuple(layers), 8, 100e12)


def resnet(part: int) -> Model:
    """ResNet-50 at 224 × 224 pixels; it is small enough for all of it."""
    del part
    layers: list[Layer] = []

    def convolution(name: str, before: int, after: int, kernel: int, pixels: int) -> None:
        operations = 2.0 * before * after * kernel * kernel * pixels * pixels
        layers.append(Layer(name, ((after, before, kernel, kernel), (after,), (after,)), operations))

    convolution("stem", 3, 64, 7, 112)
    before = 64
    for stage, (width, count, pixels) in enumerate(((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))):
        for at in range(count):
            first = pixels * 2 if at == 0 and stage > 0 else pixels
            convolution(f"{stage}.{at}.1", before, width, 1, first)
            convolution(f"{stage}.{at}.2", width, width, 3, pixels)
            convolution(f"{stage}.{at}.3", width, 4 * width, 1, pixels)
            if at == 0:
                convolution(f"{stage}.{at}.around", before, 4 * width, 1, pixels)
            before = 4 * width
    layers.append(_linear("head", before, 1000, 1))
    return Model("ResNet-50, 64 images a rank", tuple(layers), 64, 40e12)


MODELS = {"resnet50": resnet, "bert": bert, "gpt2": gpt2}
