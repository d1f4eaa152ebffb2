//! Lookup tables from values that somebody sent: sound or refused (P6), and sound ones quantize.

use arbitrary::Unstructured;
use thc_codec::quantizer::Quantizer;
use thc_codec::table::{LookupTable, MAX_GRANULARITY};

pub fn run(data: &[u8]) {
    let _ = parse(&mut Unstructured::new(data));
}

fn parse(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let fraction = if input.ratio(1, 4)? {
        f64::from_bits(input.arbitrary()?)
    } else {
        1.0 / f64::from(input.int_in_range(1..=1024u32)?)
    };
    if input.ratio(1, 8)? {
        // Solving takes longer for fine tables, and what can go wrong does so in coarse ones.
        let (bits, granularity) = (input.int_in_range(0..=9)?, input.int_in_range(0..=60)?);
        if let Ok(table) = LookupTable::solve(bits, granularity, fraction) {
            sound(&table);
        }
        return Ok(());
    }
    let values: Vec<u8> = if input.arbitrary()? {
        // Increasing, mostly: differences.
        let count = 1 << input.int_in_range(1..=8u32)?;
        let mut sum = 0u8;
        let mut values = vec![0];
        while values.len() < count {
            sum = sum.wrapping_add(input.arbitrary::<u8>()? % 16);
            values.push(sum);
        }
        values
    } else {
        input.bytes(input.len())?.to_vec()
    };
    match LookupTable::from_values(&values, fraction) {
        Ok(table) => {
            assert_eq!(table.values(), values);
            sound(&table);
        }
        Err(_) => {
            let increases = values.windows(2).all(|pair| pair[0] < pair[1]);
            let shaped = values.len() >= 2 && values.len().is_power_of_two() && values[0] == 0;
            let usual = (1e-6..1.0).contains(&fraction);
            assert!(!(increases && shaped && usual), "{values:?} with {fraction} is refused");
        }
    }
    Ok(())
}

fn sound(table: &LookupTable) {
    let values = table.values();
    assert_eq!(values[0], 0);
    assert_eq!(values.len(), 1 << table.bits());
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(u16::from(values[values.len() - 1]), table.granularity());
    assert!(table.granularity() <= MAX_GRANULARITY);
    assert!(table.t_p().is_finite() && table.t_p() >= 0.0);
    assert!(table.quantization_error().is_finite());
    if table.bits() <= 4 {
        assert_eq!(Quantizer::new(table).granularity(), u32::from(table.granularity()));
    }
}
