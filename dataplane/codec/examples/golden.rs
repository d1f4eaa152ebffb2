//! Prints the golden vectors: `cargo run -p thc-codec --example golden > dataplane/codec/golden/codec.json`.
//!
//! Floats are given as the hexadecimal digits of their bits, so that nothing is lost in decimals. `round` is the number of
//! the call (P29).

use serde_json::{Value, json};
use thc_codec::norm;
use thc_codec::partition;
use thc_codec::quantizer::{Quantizer, dequantize8};
use thc_codec::rht;
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;

/// Coordinates in the example vector.
const LEN: usize = 64;

fn floats(x: &[f32]) -> Value {
    x.iter().map(|v| format!("{:08x}", v.to_bits())).collect::<Vec<_>>().into()
}

fn bytes(x: &[u8]) -> String {
    x.iter().map(|b| format!("{b:02x}")).collect()
}

/// Keys and words of signs for a few seeds, calls and partitions (P29).
fn other_signs() -> Value {
    let keys = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 65_536, 2), (u64::MAX, 1 << 40, 4000)];
    keys.iter()
        .map(|&(job_seed, round, partition)| {
            let signs = SignKey { job_seed, call: round, partition }.signs();
            let words = [0, 1, 16_383].map(|i| format!("{:016x}", signs.word(i)));
            json!({
                "job_seed": format!("{job_seed:016x}"),
                "round": round,
                "partition": partition,
                "key": format!("{:016x}", signs.key()),
                "words": words,
            })
        })
        .collect()
}

/// Optimal tables with the t_p of their fractions (P6, P31).
fn tables() -> Result<Value, thc_codec::error::CodecError> {
    let wanted = [
        (4, 30, 1.0 / 32.0),
        (4, 20, 1.0 / 512.0),
        (3, 16, 1.0 / 32.0),
        (2, 34, 1.0 / 512.0),
        (1, 255, 0.25),
    ];
    wanted
        .iter()
        .map(|&(bits, granularity, fraction)| {
            let table = LookupTable::solve(bits, granularity, fraction)?;
            Ok(json!({
                "bits": bits,
                "granularity": granularity,
                "fraction": fraction,
                "t_p": format!("{:016x}", table.t_p().to_bits()),
                "values": table.values(),
            }))
        })
        .collect()
}

/// How tensors are cut (P4): the d of their partitions.
fn cuts() -> Value {
    [(1, 20), (1023, 20), (1024, 13), (1025, 20), (200_000, 20), (3_000_000, 20), (60_000, 13), (5000, 10)]
        .iter()
        .map(|&(length, block)| {
            let sizes: Vec<usize> = partition::split(length, block).map(|part| part.padded).collect();
            json!({ "length": length, "block": block, "partitions": sizes })
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let key = SignKey { job_seed: 0x0123_4567_89AB_CDEF, call: 42, partition: 3 };
    let private_seed = 0xFEDC_BA98_7654_3210;
    let first = 1024;
    let signs = key.signs();
    let rounding = Rounding::new(private_seed, key.call, key.partition);
    let table = LookupTable::solve(4, 30, 1.0 / 32.0)?;

    let x: Vec<f32> = (0..LEN as u16).map(|i| (f32::from(i * 37 % 101) - 50.0) / 32.0).collect();
    let norm = norm::l2(&x);
    let mut rotated = x.clone();
    rht::forward(&mut rotated, key)?;
    // Narrow enough that some coordinates are clamped.
    let range = (table.t_p() / (LEN as f64).sqrt() * f64::from(norm)) as f32;
    let quantizer = Quantizer::new(&table);
    let mut residual = rotated.clone();
    let mut indices = [0; LEN];
    quantizer.quantize(&mut residual, range, &rounding, first, &mut indices)?;
    let mut packed = [0; LEN / 2];
    quantizer.quantize_packed4(&mut rotated.clone(), range, &rounding, first, &mut packed)?;
    let sums: Vec<u8> = indices.iter().map(|z| table.values()[usize::from(*z)]).collect();
    let mut estimate = vec![0.0; LEN];
    dequantize8(&sums, 1, 30, range, &mut estimate)?;
    let mut lost = residual.clone();
    rht::inverse(&mut lost, key)?;

    let golden = json!({
        "signs": other_signs(),
        "tables": tables()?,
        "cuts": cuts(),
        "job_seed": format!("{:016x}", key.job_seed),
        "round": key.call,
        "partition": key.partition,
        "private_seed": format!("{private_seed:016x}"),
        "sign_key": format!("{:016x}", signs.key()),
        "sign_words": (0..4).map(|i| format!("{:016x}", signs.word(i))).collect::<Vec<_>>(),
        "first_coordinate": first,
        "rounding_words": (0..LEN as u64)
            .map(|i| format!("{:08x}", rounding.word(first + i)))
            .collect::<Vec<_>>(),
        "draws": (0..LEN as u64).map(|i| rounding.draw(first + i)).collect::<Vec<_>>(),
        "table": table.values(),
        "fraction": table.fraction(),
        "vector": floats(&x),
        "norm": format!("{:08x}", norm.to_bits()),
        "rotated": floats(&{ rotated }),
        "range": format!("{:08x}", range.to_bits()),
        "indices": indices.to_vec(),
        "packed": bytes(&packed),
        "estimate": floats(&estimate),
        "residual": floats(&residual),
        "inverse_of_residual": floats(&lost),
    });
    println!("{}", serde_json::to_string_pretty(&golden)?);
    Ok(())
}
