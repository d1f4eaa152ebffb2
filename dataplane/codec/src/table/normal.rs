//! The unit normal distribution, to nearly full double precision.

use std::f64::consts::{PI, SQRT_2};

use statrs::function::erf::erfc_inv;

/// Nodes of the eight-point Gauss-Legendre rule on [-1, 1], positive half.
const NODES: [f64; 4] =
    [0.183_434_642_495_649_8, 0.525_532_409_916_329, 0.796_666_477_413_626_7, 0.960_289_856_497_536_3];

/// Weights of those nodes.
const WEIGHTS: [f64; 4] =
    [0.362_683_783_378_362, 0.313_706_645_877_887_3, 0.222_381_034_453_374_47, 0.101_228_536_290_376_26];

/// Widest interval to which the eight-point rule is applied. For the normal density, up to six
/// standard deviations out, times a polynomial of degree 2, its error is below rounding error there.
const WIDEST: f64 = 0.5;

/// Density of the unit normal distribution.
pub(crate) fn density(a: f64) -> f64 {
    (-0.5 * a * a).exp() / (2.0 * PI).sqrt()
}

/// The threshold t_p that a unit normal variable exceeds in magnitude with probability
/// `fraction`, in (0, 1).
pub(crate) fn threshold(fraction: f64) -> f64 {
    let t = SQRT_2 * erfc_inv(fraction);
    // The rational approximation is good to about ten digits; one Newton step doubles them.
    t + (2.0 * tail(t, |_| 1.0) / fraction - 1.0) * fraction / (2.0 * density(t))
}

/// Visits the points of composite Gauss-Legendre quadrature on [0, width] as (point, weight).
pub(crate) fn quadrature(width: f64, mut visit: impl FnMut(f64, f64)) {
    let pieces = (width / WIDEST).ceil().max(1.0);
    let half = 0.5 * width / pieces;
    for piece in 0..pieces as u32 {
        let middle = half * f64::from(2 * piece + 1);
        for (node, weight) in NODES.iter().zip(WEIGHTS) {
            visit(middle - half * node, half * weight);
            visit(middle + half * node, half * weight);
        }
    }
}

/// ∫ f(a − t)·φ(a) da from t to ∞, t ≥ 0, for f of at most quadratic growth. Nothing cancels
/// however far out t is.
fn tail(t: f64, f: impl Fn(f64) -> f64) -> f64 {
    // φ(t + s) = φ(t)·exp(−t·s − s²/2); past exp(−50) nothing counts.
    let reach = 100.0 / (t + (t * t + 100.0).sqrt());
    // The integrand varies over a length of 1/t, so the quadrature's unit shrinks with it.
    let unit = 1.0 / t.max(1.0);
    let mut sum = 0.0;
    quadrature(reach / unit, |s, weight| {
        let s = s * unit;
        sum += weight * f(s) * (-s * (t + 0.5 * s)).exp();
    });
    density(t) * sum * unit
}

/// 2·∫ (a − t)²·φ(a) da from t to ∞: the squared error of clamping a unit normal variable to
/// [−t, t].
pub(crate) fn truncation(t: f64) -> f64 {
    2.0 * tail(t, |s| s * s)
}

#[cfg(test)]
// Reference values are given to 17 digits, shortest form or not.
#[allow(clippy::excessive_precision)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_exact_to_degree_15() {
        for degree in 0..16 {
            let mut sum = 0.0;
            quadrature(WIDEST, |s, w| sum += w * (s / WIDEST).powi(degree));
            let want = WIDEST / f64::from(degree + 1);
            assert!((sum - want).abs() < 2e-15 * want, "{degree}");
        }
    }

    #[test]
    fn thresholds() {
        // To 17 digits from a 60-digit computation.
        for (fraction, t) in [
            (0.999, 0.001_253_314_465_432_555_6),
            (0.5, 0.674_489_750_196_081_74),
            (0.05, 1.959_963_984_540_054_2),
            (1.0 / 32.0, 2.153_874_694_061_456_2),
            (0.01, 2.575_829_303_548_900_8),
            (1e-10, 6.466_951_087_240_516_2),
            (1e-100, 21.305_940_069_351_527),
            (1e-300, 37.065_787_880_772_13),
        ] {
            let got = threshold(fraction);
            assert!((got - t).abs() < 5e-16 * t.max(1.0), "{fraction}: {got}");
        }
    }

    #[test]
    fn tails_and_truncation() {
        // 2·Q(t) and 2·((1 + t²)·Q(t) − t·φ(t)) to 17 digits from a 40-digit computation.
        for (t, two_sided, error) in [
            (0.0, 1.0, 1.0),
            (0.1, 0.920_344_325_445_942_04, 0.850_157_259_204_999_1),
            (0.8, 0.423_710_797_166_793_37, 0.231_379_222_935_168_75),
            (1.0, 0.317_310_507_862_914_1, 0.150_679_566_687_541_5),
            (2.0, 0.045_500_263_896_358_414, 0.011_537_453_429_039_864),
            (3.5, 4.652_581_580_710_500_7e-4, 5.589_172_912_109_300_4e-5),
            (6.0, 1.973_175_290_075_396_3e-9, 9.689_153_491_023_656_8e-11),
            (12.0, 3.552_964_224_155_358e-33, 4.771_594_339_242_652_3e-35),
            (37.0, 1.145_114_244_504_915_4e-299, 1.666_843_525_885_544_7e-302),
        ] {
            assert!((2.0 * tail(t, |_| 1.0) / two_sided - 1.0).abs() < 4e-15, "{t}");
            assert!((truncation(t) / error - 1.0).abs() < 4e-15, "{t}");
        }
    }
}
