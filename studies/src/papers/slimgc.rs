//! SlimGC's tables and figures.

use super::entry::{Entry, Paper, Part, Status};
use super::layers::VALUES;
use super::slimgc_causes::{COSTS, PLACES};
use super::slimgc_speed::{AGAINST, MEMORY, PARTS, SIZES, SPEED};
use super::study::{COMMUNICATION, THRESHOLD, TWO_BIT};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "slimgc",
    title: "Bai, Yu, Dong: SlimGC: Gradient Compression Optimization Strategy For Distributed Deep Learning (in Chinese), Chinese Journal of \
            Computers 2025",
    figures: 14,
    tables: 3,
    claims: 0,
};

const MODEL: &str = "the models' own layers at 8 TFLOP/s for a V100; links by bytes; a launch of 12 µs for each tensor that is compressed";
const SMALL: &str = "a character model of seven tensors (256 B to 131 kB) on a text, four workers";
const ARCHITECTURES: &str = "torchvision's ResNet-18 and MobileNetV2, transformers' ViT, GPT-2 and BERT with random weights, small ones, after 24 steps on scikit-learn's \
                             digits and the words of Python's documentation, in place of large networks on ImageNet; one worker's gradient";
const SCALE: &str = "the threshold of 2-bit compression has the unit of the gradients, which are a hundred times smaller here than MXNet's sums, for which 0.5 is usual";

/// Its tables and figures.
pub const ENTRIES: [Entry; 17] = [
    Entry::figure(
        1,
        "",
        "Sizes of gradients in an iteration of ResNet20",
        "most tensors are small; a picture without numbers",
        Status::Computed { how: "the shapes of the networks' tensors", sheet: SIZES },
    )
    .with_reason("none that numbers show"),
    Entry::figure(
        2,
        "",
        "What compression gains on a GPU, by size",
        "1-bit and 2-bit compression gain from 80 KB on (V100, 100 Gb/s)",
        Status::Elsewhere {
            how: "THC on a CPU on loopback in place of 1-bit and 2-bit on a GPU",
            command: "python/bench/run probe",
            ours: "THC gains from 16,384 coordinates (64 KiB) on",
            page: "adapt.md",
        },
    )
    .with_reason("scheme, processor and network are others. It is chance that both sizes are tens of kilobytes"),
    Entry::figure(3, "", "A worker with compression and without", "", Status::Drawing),
    Entry::figure(4, "", "Costs of ways to communicate, in principle", "", Status::Drawing),
    Entry::figure(
        5,
        "",
        "Values and numbers of gradients of different models",
        "distributions that follow no common law; pictures without numbers",
        Status::Computed { how: ARCHITECTURES, sheet: VALUES },
    )
    .with_reason("no law fits here either. The magnitudes of all five networks are nearest to a log-normal law (with a largest distance of 0.04 to 0.11), and far from a normal law (0.40 to 0.81) and from Laplace's (0.15 to 0.60). The largest gradient is 138 to 195 times the root mean square, and tensors differ by factors of 27 and more. The fits leave out zeros, which are two thirds in ResNet-18, where the features of 32 × 32 pictures end in one place. These are small networks after few steps, which says nothing about large networks after many"),
    Entry::figure(6, "", "The table of thresholds", "", Status::Drawing),
    Entry::figure(7, "", "An overview", "", Status::Drawing),
    Entry::figure(8, "", "Costs of combined ways, in principle", "", Status::Drawing),
    Entry::figure(
        9,
        "",
        "Accuracy with and without the threshold, 1-bit and 2-bit",
        "the threshold adds 0.7 to 1.7 % (1-bit) and 0.7 to 1.6 % (2-bit); all of SlimGC 1.1 to 2.3 % and 1.1 to 1.6 %",
        Status::Scaled { how: SMALL, study: THRESHOLD },
    )
    .with_reason("one character model; the model backup is not part of it (its effect on loss: docs/pytorch-measured.md)"),
    Entry::figure(
        10,
        "",
        "Accuracy by the compression's threshold",
        "0.5 is best; with SlimGC's threshold all are within 0.6 %",
        Status::Scaled { how: SMALL, study: TWO_BIT },
    )
    .with_reason(SCALE),
    Entry::figure(
        11,
        "",
        "Accuracy by the size from which tensors are compressed",
        "better from 1500 B on, and more so with larger sizes; at 15 KB the 2-bit compression is as good as exact means",
        Status::Scaled { how: SMALL, study: COMMUNICATION },
    )
    .with_reason("a model of seven tensors has only four sizes between these thresholds"),
    Entry::figure(
        12,
        "",
        "Speed at 10 and 100 Gb/s",
        "at 10 Gb/s up to 28 and 32 % faster (ResNet-152), 4 to 16 % for others; at 100 Gb/s 29.9 to 75.9 %",
        Status::Computed { how: MODEL, sheet: SPEED },
    )
    .with_reason("gains are smaller than published. With the computed costs of links and launches, computing takes most of a step (at 100 Gb/s communication with 2 bits takes less than a twentieth of it), so there is little to hide. The costs of compression were fitted to the published gains (the second table): 220 µs a tensor and 0.64 ns a coordinate give all three gains at 100 Gb/s within 2 %, and neither cost alone comes nearer than 20 %. A launch does not take 220 µs, but a message for each tensor does. At 10 Gb/s the same costs give 1.4 to 1.8, where the paper has at most 1.16 to 1.32, and results of 32 bits give even more. So neither explains the small gains at 10 Gb/s")
    .with_parts(&[Part::Sheet(COSTS)]),
    Entry::figure(
        13,
        "",
        "Where the time of an epoch goes at 100 Gb/s",
        "the backup hides 6.4 times (ResNet-152) and 3.5 times (Inception-Bn) as much; communication 26.5 to 35.6 % less",
        Status::Elsewhere {
            how: "two processes with 11.3 M parameters on a CPU, links of 10, 1 and 0.3 Gb/s, THC in place of 1-bit and 2-bit",
            command: "python/bench/run changing",
            ours: "the backup hides 5.2, 3.5 and 2.0 times as much",
            page: "pytorch-measured.md",
        },
    )
    .with_reason("how much communication can be hidden depends on the ratio of the times of computing and communication"),
    Entry::figure(14, "", "Memory of the GPU", "VGG-16 8.9 %, Inception-BN 4.1 %, AlexNet 10.3 % less than with compression on the GPU", Status::Computed { how: "parameters, gradients, momentum and activations of the models' own layers, and what compression keeps beside them", sheet: MEMORY })
        .with_reason("the 600 MB of the runtime and workspaces are a guess, and so are the batches (32, AlexNet 128). The order is the paper's: AlexNet saves the most, and Inception-BN the least"),
    Entry::table(1, "Variables and their definitions", "", Status::Drawing),
    Entry::table(
        2,
        "Seconds of communication and processing, with and without quantization",
        "ResNet50: communication 2869.6 and 2121.5, processing 566.5 and 951.9; VGG16: 158828 and 120948, 27165 and 42120",
        Status::Computed { how: MODEL, sheet: PARTS },
    )
    .with_reason("by its bits, communication would take 15/16 less time. The paper saves a quarter, so bits do not determine the time of its communication. Processing consists of updates here, whose time follows from the memory, and of quantization with a launch for each tensor. The paper's processing includes more, so its relative increase is smaller"),
    Entry::table(
        3,
        "Speed beside TernGrad, TopK, DGC and THC at 100 Gb/s",
        "VGG16 107.78 samples/s, THC 69.3; VGG19 98.4 and 64.1; BERT-Base 143.15 and 118.08; GPT-2 127.98 and 106.29",
        Status::Computed { how: MODEL, sheet: AGAINST },
    )
    .with_reason("by the time of links and of compression on a GPU, THC and SlimGC differ by 3 to 13 %. In the paper a step with THC takes 0.4 (GPT-2, BERT-base) to 1.2 ns (VGG) a coordinate longer than one with SlimGC. A THC that compresses on one core of a CPU was tested (the second table). If compression is hidden behind the backward pass, the ratios are 1.18 and 1.27 for BERT-base and GPT-2 (published 1.21 and 1.20). If it is not hidden, they are 1.56 and 1.46 for VGG (published 1.56 and 1.54). So one core explains each ratio within 6 %, if compression is hidden in one task and not in the other, for which the paper gives no reason. The costs that explain Figure 12 do not fit, since transformers would lose more than VGG")
    .with_parts(&[Part::Sheet(PLACES)]),
];
