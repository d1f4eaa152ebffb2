//! THC's tables and figures.

use super::entry::{Entry, Paper, Part, Status};
use super::layers::ERRORS;
use super::study::{DRIFT, FAULTS, OPTIMIZER, SIXTY_FOUR, TESTBED, TUNING, UNIFORM, UNIFORM_BY_SGD, WORKERS};
use super::thc_causes;
use super::thc_speed::{BANDWIDTHS, HOSTS, LARGE, PARTITIONS, RESNETS, ROUND, TABLES, THROUGHPUT};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "thc",
    title: "Li, Ben Basat, Vargaftik, Lao, Xu, Mitzenmacher, Yu: THC: Accelerating Distributed Deep Learning Using Tensor \
            Homomorphic Compression, NSDI 2024",
    figures: 16,
    tables: 0,
    claims: 2,
};

const MODEL: &str = "the models' own layers at 39 TFLOP/s, a quarter of an A100's TF32; rings and THC packet by packet in thc simulate, other schemes by \
                     bytes and by the timed work of four cores";
const CLOUD: &str =
    "the same with 8 TFLOP/s for a V100, eight in a host, TCP at 25 Gb/s; THC on shares beside the workers";
const SMALL: &str = "a character model of two layers on a text in place of the paper's networks";
const SHAPES: &str = "a stand-in for an accelerator: gradients of the model's shapes become ready layer by layer while the CPU sleeps, \
                      and DDP's hook averages them for real on shaped links of 1 and 10 Gb/s";
const COMPUTED_TOO: &str = "in the measurement with the stand-in two cores run both ranks, the server and the network, and other work kept them busy. So the processor limits packets and compression here, and the link does in the paper. In the computation (the first table) no single speed of the GPU gives the three published ratios. Possible causes were fitted to these ratios (the second table). A single cause comes no nearer than 31 %, also if less communication is hidden. Two causes together come within 1 %: a GPU of 16.5 TFLOP/s, which is what an A100 reaches in F32 and not in TF32, and a Horovod that gets at most 35 Gb/s out of its link. With these two causes GPT-2, which was not fitted, is 13 % above the published ratio, and 5 % above if only 45 % of its communication is hidden. But ResNet-50 is then 1.14 to 1.29 times as fast, where the paper has at most 1.045, so Horovod's limit is not the same for all models";

/// Its tables and figures.
pub const ENTRIES: [Entry; 19] = [
    Entry::figure(1, "", "The way of a gradient with usual compression", "", Status::Drawing),
    Entry::figure(
        2,
        "a",
        "Time of a 4 MB partition, split: worker, server, communication",
        "with one server the rounds of TopK and DGC take 19.3 and 27.1 % longer than without compression, and the server's work is up to 56.9 % of a round. With four colocated servers TopK communicates 60.4 % less than without compression, work at the server takes 0.54 ms longer, which is 34.0 % of the round, and a round takes 20.6 % less time. The other bars have no numbers",
        Status::Computed {
            how: "compression and servers as timed on one core (thc papers --costs), links of 100 Gb/s by bytes",
            sheet: PARTITIONS,
        },
    )
    .with_reason("the server decides the length of a round, as in the paper. With compression on a GPU and four cores for a server, TopK's round is 2 % shorter and DGC's 9 % shorter than without compression (published: 19.3 and 27.1 % longer), and the server's work is 86 % of it (published: up to 56.9 %). With one core for the server their rounds are several times as long. With colocated servers TopK's round is 20 % longer, where the paper has 20.6 % shorter. By the paper's own numbers (0.54 ms are 34.0 % of a round that is 20.6 % shorter) a partition without compression takes 2.0 ms there, four times the time of a 100 Gb/s link, so that bytes matter more. The paper does not say why. The times of QSGD and TernGrad are those of packing bits in plain code"),
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
    .with_reason("TernGrad's error agrees with the paper's if all workers have the same vector. TopK's error depends on how heavy the tails are, and the paper does not say which gradients it measured. On gradients of real architectures (the table) TopK has 0.44 for ResNet-18, where the paper has 0.46, and 0.02 to 0.62 for other networks, so the choice of the network decides. TernGrad clips at 2.5 standard deviations in that table, as in its own paper, and stays below 1.5; 6.95 is an error without clipping. THC has 0.017 to 0.025 for all networks, tensor by tensor or as one vector")
    .with_parts(&[Part::Sheet(ERRORS)]),
    Entry::figure(3, "", "An illustration of THC", "", Status::Drawing),
    Entry::figure(4, "", "THC's steps", "", Status::Drawing),
    Entry::figure(
        5,
        "",
        "Time to accuracy: VGG16, GPT-2, RoBERTa-base, four workers",
        "THC reaches the target 1.40 (VGG16) to 1.47 (GPT-2) times as fast as Horovod-RDMA with the switch, and 1.28 to 1.33 times with a software server. TopK and DGC reach the target late, and TernGrad never",
        Status::Scaled { how: "a character model of two layers on a text; loss and accuracy after equal steps, and the bits of a step", study: TESTBED },
    )
    .with_reason("the optimizer explains why TernGrad trains here and not in the paper. With Adam, which scales each coordinate, TernGrad loses 0.05 nats; with SGD (the second table) it loses 0.28, more than any other scheme. The paper names no task for which Adam would be unsuitable, so it is not known how much of TernGrad's failure the optimizer explains. Here DGC's momentum of 0.9 comes before the optimizer's own. The time of a step is measured by make bench-torch, and computed for Figure 6")
    .with_parts(&[Part::Study(OPTIMIZER)]),
    Entry::figure(
        6,
        "",
        "Throughput at 100 Gb/s",
        "THC with the switch up to 1.54 times Horovod-RDMA (GPT-2); colocated 1.11 to 1.37 times TopK",
        Status::Computed { how: MODEL, sheet: THROUGHPUT },
    )
    .with_reason("THC with the switch is 1.19 times as fast as Horovod for VGG16 (published 1.43) and 1.37 times for GPT-2 (published 1.54). A faster GPU brings our ratios nearer to the published ones (Figure 7), so the time of computing is one cause. The other cause is the time that Horovod loses beyond its link, which the model of a perfect ring does not have: with 15 TFLOP/s and a Horovod of 44 Gb/s that hides half of its communication, VGG16 has the published ratio and GPT-2 has 1.62 (Figure 7). Colocated THC is 1.4 to 1.9 times as fast as TopK, where the paper has 1.11 to 1.37, since the servers of TopK, DGC and QSGD, which run plain code on four cores here, limit these schemes"),
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
    .with_reason(COMPUTED_TOO)
    .with_parts(&[Part::Sheet(BANDWIDTHS), Part::Sheet(thc_causes::TESTBED)]),
    Entry::figure(
        8,
        "",
        "A round of VGG16 at 100 Gb/s, split",
        "communication 32.5 % of that without compression; the worker's time 9.5 % more; TopK's round 46.5 % longer than THC's",
        Status::Computed { how: MODEL, sheet: ROUND },
    )
    .with_reason("THC's communication takes 28.7 % of the time without compression, where the paper has 32.5 %, if both have one server. TopK's server takes longer than in the paper, where TopK's round is 46.5 % longer than THC's, since it selects coordinates in plain code on four cores"),
    Entry::figure(
        9,
        "",
        "Throughput of eight hosts of eight GPUs at 25 Gb/s",
        "1.05 to 1.16 times",
        Status::Computed { how: CLOUD, sheet: HOSTS },
    )
    .with_reason("the ratios are larger than the published ones. The second table shows how large a single cause would have to be, also for the models of Figure 13. Slower GPUs cannot be the cause, since VGG19 would need at least 6.8 TFLOP/s and RoBERTa-large 1.5. Communication inside a host cannot be the cause, since it would have to take 18 to 19 ns per coordinate for all models, a hundred times as long as with NVLink. If THC's messages get 5.8 of the 25 Gb/s, all seven published numbers follow within 1 %. That rate is close to the 5 Gb/s to which EC2 limits one flow outside a placement group (its User Guide, Instance network bandwidth). The paper does not say whether its servers used one flow to each host")
    .with_parts(&[Part::Sheet(thc_causes::CLOUD)]),
    Entry::figure(
        10,
        "",
        "Accuracy beside exact means, 4 to 64 workers, equal bits",
        "BERT: THC −0.1 % with 4 workers, 0 with 64; TopK −0.047 % to −0.46 %",
        Status::Scaled { how: SMALL, study: WORKERS },
    )
    .with_reason("the trend is the paper's: with more workers TopK and QSGD fall further behind exact means, and THC does not. Two possible causes of the size of the differences were tested. With as many bits down as THC, TopK loses 0.8 % with 64 workers; with 4 bits down it loses 2.9 %. And if training starts from a trained model, as in the paper's fine-tuning, differences become as small as the paper's: 0.1 % for THC and 0.3 % for TopK with 16 workers (the second table). TernGrad and SignSGD do not have the same number of bits")
    .with_parts(&[Part::Study(TUNING)]),
    Entry::figure(
        11,
        "",
        "Lost packets and stragglers: accuracy in training, ten workers",
        "a loss of 1 % of the packets costs 24 % of accuracy, and 1.5 % with synchronization; a loss of 0.1 % costs 11 %, and 0.5 % with synchronization; one straggler costs nothing, two or three cost 5 to 6 %",
        Status::Scaled { how: "a character model on a text; a packet is a partition of its own; five epochs", study: FAULTS },
    )
    .with_reason("after 100 steps lost packets cost almost nothing, with and without synchronization, because replicas drift apart slowly. After 1000 steps of SGD (the second table) a loss of 1 % costs 5.4 % of accuracy in training without synchronization and 1.1 % with it, where the paper has 24 and 1.5 %; with Adam it costs 1.1 and 0.5 %. The paper's trainings are longer still. Stragglers increase the training loss a little, in the paper's order")
    .with_parts(&[Part::Study(DRIFT)]),
    Entry::figure(12, "", "Throughput of ResNets", "at most 4.5 % above Horovod-RDMA for any scheme", Status::Computed { how: MODEL, sheet: RESNETS })
        .with_reason("none. All schemes are at most 4 % above Horovod, as published, and schemes with busy servers are slower than Horovod"),
    Entry::figure(13, "", "Throughput of RoBERTa-large and Bart-large", "1.11 and 1.12 times", Status::Computed { how: CLOUD, sheet: LARGE })
        .with_reason("the ratios are much larger than the published ones. By its bytes a step of RoBERTa-large takes 0.8 s of the link without compression and 0.2 s with THC, so a ratio of 1.11 would need 5 s of computing, twenty times as long as these operations take. As in Figure 9, both published ratios follow if THC gets 5.7 to 5.8 of the 25 Gb/s, and so do the five of Figure 9"),
    Entry::figure(
        14,
        "",
        "Uniform THC with and without rotation and feedback",
        "THC is close to the baseline; without rotation accuracy is about 5 % lower; feedback changes little",
        Status::Scaled { how: SMALL, study: UNIFORM },
    )
    .with_reason("with Adam all variants are within 0.03 nats of exact means, and rotation gains 0.02. With SGD (the second table) uniform THC without rotation and feedback loses 0.07 nats compared with exact means and 0.06 compared with rotation (accuracies are within the spread), so Adam is one cause. Feedback makes up for the lack of rotation here (0.01 nats better than exact means), which it does not in the paper. The other cause is the gradients. On those of real architectures (the table of Figure 2b) the error of a tensor without rotation is 1.6 (ViT) to 142 times (BERT) the error with rotation. With BERT it is 9 times as large as the gradient itself, from which nothing can be learned, and the paper trains RoBERTa")
    .with_parts(&[Part::Study(UNIFORM_BY_SGD)]),
    Entry::figure(
        15,
        "",
        "NMSE by granularity and bit budget, ten workers",
        "each step from 2 to 3 and from 3 to 4 bits reduces the error almost to a tenth; a larger granularity reduces it a little",
        Status::Elsewhere {
            how: "as in the paper: lognormal, ten copies of a vector, p = 1/1024, fewer repetitions",
            command: "thc figures nmse",
            ours: "at g = 30: 0.0633, 0.0103, 0.00256 for 2, 3, 4 bits; at g = 60: 0.0625, 0.0101, 0.00228",
            page: "figures.md",
        },
    )
    .with_reason("the paper's curves have no numbers. Our errors fall by factors of 6 and 4 per bit, and the paper's by almost 10"),
    Entry::figure(
        16,
        "",
        "Lost packets and stragglers: accuracy in the test",
        "losses of 1 % and 0.1 % of the packets cost 6 % and 3.2 % of accuracy, and 1.5 % and 0.4 % with synchronization; two or three stragglers cost 0.5 %",
        Status::Scaled { how: "as Figure 11", study: FAULTS },
    )
    .with_reason("as Figure 11"),
    Entry::claim(
        1,
        "Appendix B: all lookup tables within mere minutes",
        "a specialized solver found the optimal tables of over 4000 combinations of b, g and p within mere minutes",
        Status::Computed { how: "granularities up to 60, 40 fractions for each, b = 2 to 4", sheet: TABLES },
    )
    .with_reason("none. thc table sweep solves 6320 tables in 0.05 s on one core, where the paper's solver took minutes for 4000. The dynamic program is exact, like the paper's search"),
    Entry::claim(
        2,
        "Section 8.4: 64 workers in one process",
        "training of up to 64 workers is simulated on four GPUs",
        Status::Scaled { how: SMALL, study: SIXTY_FOUR },
    )
    .with_reason("none that numbers show. In a build for tests, 200 steps of 64 workers with the demo's model of half a million parameters (--hidden 480 --seeds 1) took 277 s of processor time for both trainings together, which is 2.3 minutes on two idle cores. The losses were 2.451 with THC and 2.444 without compression"),
];
