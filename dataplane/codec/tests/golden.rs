//! The golden vectors still hold. They are written by the example `golden`.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use thc_codec::quantizer::{Quantizer, dequantize8};
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{norm, packing, partition, rht};

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/codec.json")).unwrap()
}

fn hex(v: &Value) -> u64 {
    u64::from_str_radix(v.as_str().unwrap(), 16).unwrap()
}

fn float(v: &Value) -> f32 {
    f32::from_bits(hex(v) as u32)
}

fn floats(v: &Value) -> Vec<f32> {
    v.as_array().unwrap().iter().map(float).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

fn small(v: &Value) -> Vec<u8> {
    v.as_array().unwrap().iter().map(|b| b.as_u64().unwrap() as u8).collect()
}

fn key(g: &Value) -> SignKey {
    SignKey {
        job_seed: hex(&g["job_seed"]),
        call: g["round"].as_u64().unwrap(),
        partition: g["partition"].as_u64().unwrap() as u32,
    }
}

fn rounding(g: &Value) -> Rounding {
    let key = key(g);
    Rounding::new(hex(&g["private_seed"]), key.call, key.partition)
}

#[test]
fn signs() {
    let g = golden();
    let signs = key(&g).signs();
    assert_eq!(signs.key(), hex(&g["sign_key"]));
    for (i, word) in g["sign_words"].as_array().unwrap().iter().enumerate() {
        assert_eq!(signs.word(i as u64), hex(word));
    }
}

#[test]
fn signs_of_other_keys() {
    for g in golden()["signs"].as_array().unwrap() {
        let signs = key(g).signs();
        assert_eq!(signs.key(), hex(&g["key"]), "{g}");
        for (i, word) in [0, 1, 16_383].into_iter().zip(g["words"].as_array().unwrap()) {
            assert_eq!(signs.word(i), hex(word), "{g}");
        }
    }
}

#[test]
fn tables() {
    for g in golden()["tables"].as_array().unwrap() {
        let (bits, granularity) = (g["bits"].as_u64().unwrap(), g["granularity"].as_u64().unwrap());
        let table =
            LookupTable::solve(bits as u8, granularity as u16, g["fraction"].as_f64().unwrap()).unwrap();
        assert_eq!(table.values(), small(&g["values"]), "{g}");
        assert_eq!(table.t_p().to_bits(), hex(&g["t_p"]), "{g}");
    }
}

#[test]
fn cuts() {
    for g in golden()["cuts"].as_array().unwrap() {
        let number = |key: &str| g[key].as_u64().unwrap();
        let sizes: Vec<u64> = partition::split(number("length") as usize, number("block") as u8)
            .map(|p| p.padded as u64)
            .collect();
        assert_eq!(Some(sizes), g["partitions"].as_array().unwrap().iter().map(Value::as_u64).collect());
    }
}

#[test]
fn rounding_stream() {
    let g = golden();
    let first = g["first_coordinate"].as_u64().unwrap();
    let words = g["rounding_words"].as_array().unwrap();
    assert_eq!(words.len(), 64);
    for (i, word) in words.iter().enumerate() {
        assert_eq!(u64::from(rounding(&g).word(first + i as u64)), hex(word));
    }
    for (i, draw) in g["draws"].as_array().unwrap().iter().enumerate() {
        assert_eq!(Some(u64::from(rounding(&g).draw(first + i as u64))), draw.as_u64());
    }
}

#[test]
fn norm_and_transform() {
    let g = golden();
    let mut x = floats(&g["vector"]);
    assert_eq!(norm::l2(&x).to_bits(), float(&g["norm"]).to_bits());
    rht::forward(&mut x, key(&g)).unwrap();
    assert_eq!(bits(&x), bits(&floats(&g["rotated"])));
    let mut r = floats(&g["residual"]);
    rht::inverse(&mut r, key(&g)).unwrap();
    assert_eq!(bits(&r), bits(&floats(&g["inverse_of_residual"])));
}

#[test]
fn quantized_and_packed() {
    let g = golden();
    let table = LookupTable::solve(4, 30, g["fraction"].as_f64().unwrap()).unwrap();
    assert_eq!(table.values(), small(&g["table"]));
    let quantizer = Quantizer::new(&table);
    let (range, first) = (float(&g["range"]), g["first_coordinate"].as_u64().unwrap());
    let mut x = floats(&g["rotated"]);
    let mut indices = vec![0; x.len()];
    quantizer.quantize(&mut x, range, &rounding(&g), first, &mut indices).unwrap();
    assert_eq!(indices, small(&g["indices"]));
    assert_eq!(bits(&x), bits(&floats(&g["residual"])));

    let mut packed = vec![0; x.len() / 2];
    let mut x = floats(&g["rotated"]);
    quantizer.quantize_packed4(&mut x, range, &rounding(&g), first, &mut packed).unwrap();
    let hex: String = packed.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, g["packed"].as_str().unwrap());
    let mut repacked = vec![0; packed.len()];
    packing::pack(4, &indices, &mut repacked).unwrap();
    assert_eq!(packed, repacked);

    let sums: Vec<u8> = indices.iter().map(|z| table.values()[usize::from(*z)]).collect();
    let mut estimate = vec![0.0; sums.len()];
    dequantize8(&sums, 1, 30, range, &mut estimate).unwrap();
    assert_eq!(bits(&estimate), bits(&floats(&g["estimate"])));
}
