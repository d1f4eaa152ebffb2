//! Layers of the models that papers train: shapes of all tensors, and the work of a forward pass, by the definitions that
//! torchvision and transformers ship.

/// A layer: its tensors' coordinates, and floating-point operations of a forward pass of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub tensors: Vec<u64>,
    pub forward: f64,
    /// Numbers that a forward pass of one sample keeps for the backward pass.
    pub kept: f64,
}

/// A model, its layers in the order of the forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    pub name: &'static str,
    pub layers: Vec<Layer>,
}

impl Layer {
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().sum()
    }
}

impl Architecture {
    pub fn parameters(&self) -> u64 {
        self.layers.iter().map(Layer::parameters).sum()
    }

    /// Floating-point operations of a forward pass of one sample.
    pub fn forward(&self) -> f64 {
        self.layers.iter().map(|layer| layer.forward).sum()
    }

    /// Coordinates of all tensors.
    pub fn tensors(&self) -> Vec<u64> {
        self.layers.iter().flat_map(|layer| layer.tensors.clone()).collect()
    }
}

/// A convolution of `kernel`² with an output of `size`² and, unless it has a bias, a normalization behind it.
fn convolution(inputs: u64, outputs: u64, kernel: u64, size: u64, bias: bool) -> Layer {
    let weight = inputs * outputs * kernel * kernel;
    let places = (size * size) as f64;
    let mut tensors = vec![weight, outputs];
    if !bias {
        // Scale and offset of the normalization.
        tensors.push(outputs);
    }
    let maps = if bias { 1.0 } else { 2.0 };
    Layer { tensors, forward: 2.0 * weight as f64 * places, kept: maps * outputs as f64 * places }
}

fn linear(inputs: u64, outputs: u64, tokens: u64) -> Layer {
    let weight = inputs * outputs;
    Layer {
        tensors: vec![weight, outputs],
        forward: 2.0 * (weight * tokens) as f64,
        kept: (outputs * tokens) as f64,
    }
}

/// VGG of 16 or 19 layers on pictures of 224² (Simonyan, Zisserman 2015).
pub fn vgg(name: &'static str, blocks: [u64; 5]) -> Architecture {
    let mut layers = Vec::new();
    let (mut inputs, mut size) = (3, 224);
    for (count, outputs) in blocks.into_iter().zip([64, 128, 256, 512, 512]) {
        for _ in 0..count {
            layers.push(convolution(inputs, outputs, 3, size, true));
            inputs = outputs;
        }
        size /= 2;
    }
    layers.extend([linear(512 * 7 * 7, 4096, 1), linear(4096, 4096, 1), linear(4096, 1000, 1)]);
    Architecture { name, layers }
}

/// ResNet with bottlenecks on pictures of 224² (He et al. 2016).
pub fn resnet(name: &'static str, blocks: [u64; 4]) -> Architecture {
    let mut layers = vec![convolution(3, 64, 7, 112, false)];
    let (mut inputs, mut size) = (64, 56);
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let out_size = if block == 0 && stage > 0 { size / 2 } else { size };
            layers.push(convolution(inputs, width, 1, size, false));
            layers.push(convolution(width, width, 3, out_size, false));
            layers.push(convolution(width, 4 * width, 1, out_size, false));
            if block == 0 {
                layers.push(convolution(inputs, 4 * width, 1, out_size, false));
            }
            (inputs, size) = (4 * width, out_size);
        }
    }
    layers.push(linear(2048, 1000, 1));
    Architecture { name, layers }
}

/// ResNet-20 on pictures of 32², of which SlimGC's Fig. 1 shows the sizes.
pub fn resnet20() -> Architecture {
    let mut layers = vec![convolution(3, 16, 3, 32, false)];
    let mut inputs = 16;
    for (stage, size) in [32, 16, 8].into_iter().enumerate() {
        let width = 16 << stage;
        for _ in 0..3 {
            layers.push(convolution(inputs, width, 3, size, false));
            layers.push(convolution(width, width, 3, size, false));
            inputs = width;
        }
    }
    layers.push(linear(64, 10, 1));
    Architecture { name: "ResNet-20", layers }
}

/// AlexNet on pictures of 224² (torchvision's).
pub fn alexnet() -> Architecture {
    let layers = vec![
        convolution(3, 64, 11, 55, true),
        convolution(64, 192, 5, 27, true),
        convolution(192, 384, 3, 13, true),
        convolution(384, 256, 3, 13, true),
        convolution(256, 256, 3, 13, true),
        linear(256 * 6 * 6, 4096, 1),
        linear(4096, 4096, 1),
        linear(4096, 1000, 1),
    ];
    Architecture { name: "AlexNet", layers }
}

/// Tokens of a sample of a language task.
const TOKENS: u64 = 128;

/// What transformers differ in.
struct Transformer {
    name: &'static str,
    vocabulary: u64,
    /// Places, kinds of segments and whatever else is looked up.
    places: u64,
    width: u64,
    layers: u64,
    /// Layers that also look at an encoder's output, whose attention is another one.
    decoders: u64,
    /// A dense layer behind the first token's output, which classifies.
    pooler: bool,
    /// A normalization of the embedding, and one at the end.
    norms: u64,
}

fn transformer(model: &Transformer) -> Architecture {
    let d = model.width;
    let norm = || Layer { tensors: vec![d, d], forward: 0.0, kept: (d * TOKENS) as f64 };
    let table = |rows: u64| Layer { tensors: vec![rows * d], forward: 0.0, kept: (d * TOKENS) as f64 };
    let mut layers = vec![table(model.vocabulary), table(model.places)];
    layers.extend((0..model.norms).map(|_| norm()));
    for number in 0..model.layers + model.decoders {
        let attentions = if number < model.layers { 1 } else { 2 };
        for _ in 0..attentions {
            layers.extend((0..4).map(|_| linear(d, d, TOKENS)));
            layers.push(norm());
        }
        layers.extend([linear(d, 4 * d, TOKENS), linear(4 * d, d, TOKENS), norm()]);
    }
    if model.pooler {
        layers.push(linear(d, d, 1));
    }
    Architecture { name: model.name, layers }
}

/// BERT-base (Devlin et al. 2019).
pub fn bert_base() -> Architecture {
    let places = 512 + 2;
    transformer(&Transformer {
        name: "BERT-base",
        vocabulary: 30522,
        places,
        width: 768,
        layers: 12,
        decoders: 0,
        pooler: true,
        norms: 1,
    })
}

/// RoBERTa-base (Liu et al. 2019).
pub fn roberta_base() -> Architecture {
    let places = 514 + 1;
    transformer(&Transformer {
        name: "RoBERTa-base",
        vocabulary: 50265,
        places,
        width: 768,
        layers: 12,
        decoders: 0,
        pooler: true,
        norms: 1,
    })
}

/// RoBERTa-large.
pub fn roberta_large() -> Architecture {
    let places = 514 + 1;
    transformer(&Transformer {
        name: "RoBERTa-large",
        vocabulary: 50265,
        places,
        width: 1024,
        layers: 24,
        decoders: 0,
        pooler: true,
        norms: 1,
    })
}

/// Bart-large (Lewis et al. 2020).
pub fn bart_large() -> Architecture {
    let places = 2 * 1026;
    transformer(&Transformer {
        name: "Bart-large",
        vocabulary: 50265,
        places,
        width: 1024,
        layers: 12,
        decoders: 12,
        pooler: false,
        norms: 2,
    })
}

/// GPT-2 (Radford et al. 2019), the smallest.
pub fn gpt2() -> Architecture {
    transformer(&Transformer {
        name: "GPT-2",
        vocabulary: 50257,
        places: 1024,
        width: 768,
        layers: 12,
        decoders: 0,
        pooler: false,
        norms: 1,
    })
}

/// VGG16.
pub fn vgg16() -> Architecture {
    vgg("VGG16", [2, 2, 3, 3, 3])
}

/// VGG19.
pub fn vgg19() -> Architecture {
    vgg("VGG19", [2, 2, 4, 4, 4])
}

/// Transformer-XL of the size that L-GreCo trains on WikiText-103 (NVIDIA's base configuration): 16 layers of width 512, and an
/// embedding of 267,735 words, which also predicts.
pub fn transformer_xl() -> Architecture {
    let (d, inner, words, tokens) = (512, 2048, 267_735, XL_TOKENS);
    // The adaptive softmax looks at the most frequent words first; a tenth of the table is what a token takes in the mean.
    let table =
        Layer { tensors: vec![words * d, words], forward: 0.2 * (words * d * tokens) as f64, kept: 0.0 };
    let mut layers = vec![table];
    for _ in 0..16 {
        layers.push(linear(d, 3 * d, tokens));
        layers.push(linear(d, d, tokens));
        layers.push(linear(d, d, tokens));
        layers.push(linear(d, inner, tokens));
        layers.push(linear(inner, d, tokens));
        layers.push(Layer { tensors: vec![d; 4], forward: 0.0, kept: (2 * d * tokens) as f64 });
    }
    Architecture { name: "Transformer-XL", layers }
}

/// Tokens of a sample of Transformer-XL.
pub const XL_TOKENS: u64 = 192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_parameters_that_torchvision_and_transformers_count() {
        for (model, parameters) in [
            (vgg16(), 138_357_544),
            (vgg19(), 143_667_240),
            (resnet("ResNet-50", [3, 4, 6, 3]), 25_557_032),
            (resnet("ResNet-101", [3, 4, 23, 3]), 44_549_160),
            (resnet("ResNet-152", [3, 8, 36, 3]), 60_192_808),
            (alexnet(), 61_100_840),
            (bert_base(), 109_482_240),
            (roberta_base(), 124_645_632),
            (roberta_large(), 355_359_744),
            (bart_large(), 406_291_456),
            (gpt2(), 124_439_808),
            // 192 M in NVIDIA's table; its projections have no biases, which ours have.
            (transformer_xl(), 191_988_695),
        ] {
            assert_eq!(model.parameters(), parameters, "{}", model.name);
            assert_eq!(model.tensors().iter().sum::<u64>(), parameters);
        }
        // Multiply-adds of a picture, as papers count them: 15.5 and 4.1 thousand millions.
        assert!((vgg16().forward() / 2e9 - 15.5).abs() < 0.1, "{}", vgg16().forward());
        let resnet50 = resnet("ResNet-50", [3, 4, 6, 3]).forward() / 2e9;
        assert!((3.8..4.2).contains(&resnet50), "{resnet50}");
    }
}
