//! THC's tables and figures.

use super::entry::{Entry, Paper, Status};
use super::study::{FAULTS, TESTBED, UNIFORM, WORKERS};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "thc",
    title: "Li, Ben Basat, Vargaftik, Lao, Xu, Mitzenmacher, Yu: THC: Accelerating Distributed Deep Learning Using Tensor \
            Homomorphic Compression, NSDI 2024",
    figures: 16,
    tables: 0,
};

const NO_GPU: &str = "throughput of GPUs on links of 25 to 100 Gb/s: neither is at hand";
const SMALL: &str = "a character model of two layers on a text in place of the paper's networks";
const SHAPES: &str = "a stand-in for an accelerator: gradients of the model's shapes become ready layer by layer while the CPU sleeps, \
                      and DDP's hook averages them for real on shaped links of 1 and 10 Gb/s";
const BUSY: &str = "two cores carry both ranks, the server and the network, and other work kept them busy: packets and compression \
                    are bound by the processor here, by the link in the paper";

/// Its tables and figures.
pub const ENTRIES: [Entry; 17] = [
    Entry::figure(1, "", "The way of a gradient with usual compression", "", Status::Drawing),
    Entry::figure(
        2,
        "a",
        "Time of a 4 MB partition, split: worker, server, communication",
        "with one server rounds of TopK and DGC are 19.3 and 27.1 % longer than without compression, up to 56.9 % of them work of the server; \
         with four colocated servers TopK communicates 60.4 % less than no compression, but compresses 0.54 ms longer at the server, 34.0 % of \
         the round, so that a round is 20.6 % shorter; the other bars have no numbers",
        Status::NotRun(
            "other schemes are written for experiments here, not for speed, so their times would say nothing; \
             make bench-allreduce times THC beside gloo",
        ),
    ),
    Entry::figure(
        2,
        "b",
        "NMSE of schemes with four workers",
        "TernGrad 6.95, TopK 10 % 0.46, THC far below both",
        Status::Elsewhere {
            how: "2^20 lognormal coordinates in place of a gradient of a training",
            command: "thc figures nmse",
            ours: "four copies: TernGrad 6.80 ± 0.28, TopK 0.236, THC 0.0105; with different vectors 16.9, 0.552, 0.0105",
            page: "figures.md",
        },
    )
    .because("TernGrad agrees on copies; TopK depends on how heavy the tails are, and the paper does not say which gradients it measured"),
    Entry::figure(3, "", "An illustration of THC", "", Status::Drawing),
    Entry::figure(4, "", "THC's steps", "", Status::Drawing),
    Entry::figure(
        5,
        "",
        "Time to accuracy: VGG16, GPT-2, RoBERTa-base, four workers",
        "to the target THC is 1.40 (VGG16) to 1.47 (GPT-2) times as fast as Horovod-RDMA with the switch, 1.28 to 1.33 with a software \
         server; TopK and DGC reach it late, TernGrad never",
        Status::Scaled { how: "a character model of two layers on a text; loss and accuracy after equal steps, and the bits of a step", study: TESTBED },
    )
    .because(
        "TernGrad trains here and does not in the paper: not explained; whether Adam, which scales each coordinate, makes up for its error was not \
         tested. DGC's momentum of 0.9 comes before Adam's here. What a step takes is measured by make bench-torch",
    ),
    Entry::figure(
        6,
        "",
        "Throughput at 100 Gb/s",
        "THC with the switch up to 1.54 times Horovod-RDMA (GPT-2); colocated 1.11 to 1.37 times TopK",
        Status::NotRun(NO_GPU),
    ),
    Entry::figure(
        7,
        "",
        "Throughput of VGG16 at 25, 40 and 100 Gb/s",
        "1.85, 1.45 and 1.43 times Horovod-RDMA with the switch",
        Status::Elsewhere {
            how: SHAPES,
            command: "python/bench/run accelerator",
            ours: "ResNet-50's shapes, 2 ranks: 0.65 times no hook at 10 Gb/s and 0.45 at 1 Gb/s on busy cores; only_if_faster stays at 0.93 to 0.99",
            page: "pytorch-measured.md",
        },
    )
    .because(BUSY),
    Entry::figure(
        8,
        "",
        "A round of VGG16 at 100 Gb/s, split",
        "communication 32.5 % of that without compression; the worker's time 9.5 % more; TopK's round 46.5 % longer than THC's",
        Status::NotRun(NO_GPU),
    ),
    Entry::figure(
        9,
        "",
        "Throughput of eight hosts of eight GPUs at 25 Gb/s",
        "1.05 to 1.16 times",
        Status::NotRun("hosts of eight GPUs are not at hand; two hosts of several ranks on CPUs are in docs/pytorch-measured.md"),
    ),
    Entry::figure(
        10,
        "",
        "Accuracy beside exact means, 4 to 64 workers, equal bits",
        "BERT: THC −0.1 % with 4 workers, 0 with 64; TopK −0.047 % to −0.46 %",
        Status::Scaled { how: SMALL, study: WORKERS },
    )
    .because(
        "the trend is the paper's: TopK falls further behind exact means with every doubling of workers, THC does not. Its size is not explained: a \
         training from the start for few steps, where the paper fine-tunes for two epochs. TopK sends as many bits up as THC, but fewer down \
         (4), and TernGrad and SignSGD are not matched",
    ),
    Entry::figure(
        11,
        "",
        "Lost packets and stragglers: accuracy in training, ten workers",
        "1 % lost: 24 % less, with synchronization 1.5 %; 0.1 %: 11 %, with synchronization 0.5 %; one straggler: none less, two or three: 5 to 6 %",
        Status::Scaled { how: "a character model on a text; a packet is a partition of its own; five epochs", study: FAULTS },
    )
    .because(
        "lost packets cost next to nothing here, with and without synchronization: not explained. Replicas have few steps to drift apart in; whether \
         that is the reason was not tested. Stragglers cost a little loss, in the paper's order",
    ),
    Entry::figure(12, "", "Throughput of ResNets", "at most 4.5 % above Horovod-RDMA for any scheme", Status::NotRun(NO_GPU)),
    Entry::figure(13, "", "Throughput of RoBERTa-large and Bart-large", "1.11 and 1.12 times", Status::NotRun(NO_GPU)),
    Entry::figure(
        14,
        "",
        "Uniform THC with and without rotation and feedback",
        "THC nearly at the baseline; without rotation about 5 % less; feedback changes little",
        Status::Scaled { how: SMALL, study: UNIFORM },
    )
    .because(
        "by how much each costs is another model's: not explained",
    ),
    Entry::figure(
        15,
        "",
        "NMSE by granularity and bit budget, ten workers",
        "almost a tenth from 2 to 3 and from 3 to 4 bits; a little less with a larger granularity",
        Status::Elsewhere {
            how: "as in the paper: lognormal, ten copies of a vector, p = 1/1024, fewer repetitions",
            command: "thc figures nmse",
            ours: "at g = 30: 0.0633, 0.0103, 0.00256 for 2, 3, 4 bits; at g = 60: 0.0625, 0.0101, 0.00228",
            page: "figures.md",
        },
    )
    .because("the paper's curves have no numbers; ours fall by 6 and by 4 for a bit, the paper's by almost 10"),
    Entry::figure(
        16,
        "",
        "Lost packets and stragglers: accuracy in the test",
        "1 % and 0.1 % lost: 6 % and 3.2 % less, with synchronization 1.5 % and 0.4 %; two or three stragglers: 0.5 %",
        Status::Scaled { how: "as Figure 11", study: FAULTS },
    )
    .because("as Figure 11"),
];
