//! One thread of a program, for one packet.

use super::program::{
    Bits, Call, Expression, Next, Operator, Place, Program, Statement, Ternary, Thread, mask,
};
use super::state::Tables;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// TNA's number of a meter's colour.
const RED: u64 = 3;

/// A register's cells, one or two words each.
pub type Cells = Vec<[u64; 2]>;

/// What a packet meets beside its own fields: the state of a pipe.
pub struct Pipe<'a> {
    pub tables: &'a Tables,
    /// By register.
    pub registers: &'a mut Vec<Cells>,
    /// Packets and bytes, by counter.
    pub counters: &'a mut Vec<Vec<(u64, u64)>>,
    /// Packets that rows' meters have let pass, by table and key.
    pub metered: &'a mut BTreeMap<(usize, Vec<u64>), u64>,
}

/// A packet in a thread.
pub struct Run<'a, 'p> {
    program: &'a Program,
    thread: &'a Thread,
    pipe: &'a mut Pipe<'p>,
    places: Vec<u64>,
    packet: &'a [u8],
    /// Bits of the packet that have been parsed.
    parsed: usize,
    /// Bytes that counters count.
    length: u64,
    sum: u64,
    out: Vec<u8>,
    /// Registers that the packet has been at: a chip lets it be at each of them once.
    met: BTreeSet<usize>,
    /// Table and key of the row that was hit last.
    row: (usize, Vec<u64>),
    random: &'a mut Rng,
    /// Headers whose fields keep what is written to them while they are not valid.
    keeping: &'a [&'static str],
}

/// How parsing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    Accepted,
    Rejected,
    /// The packet is shorter than a header that it should have.
    Short,
}

impl<'a, 'p> Run<'a, 'p> {
    /// A packet of which nothing is parsed. All places hold anything, for a chip's are not empty either; no header is valid.
    pub fn new(
        program: &'a Program,
        thread: &'a Thread,
        pipe: &'a mut Pipe<'p>,
        packet: &'a [u8],
        length: u64,
        keeping: &'a [&'static str],
        random: &'a mut Rng,
    ) -> Run<'a, 'p> {
        let mut places: Vec<u64> = thread.widths.iter().map(|&bits| random.u64(..) & mask(bits)).collect();
        for header in &thread.headers {
            places[header.valid] = 0;
        }
        let (parsed, sum, out, met, row) = (0, 0, Vec::new(), BTreeSet::new(), (0, Vec::new()));
        Run { program, thread, pipe, places, packet, parsed, length, sum, out, met, row, random, keeping }
    }

    /// Gives one of the architecture's fields a value, if the program knows it.
    pub fn say(&mut self, name: &str, value: u64) {
        if let Some(&(place, _)) = self.thread.names.get(name) {
            self.write(place, value);
        }
    }

    pub fn read(&self, name: &str) -> Option<u64> {
        self.thread.names.get(name).map(|&(place, _)| self.places[place.at])
    }

    fn write(&mut self, place: Place, value: u64) {
        let bits = mask(place.high - place.low + 1);
        let word = &mut self.places[place.at];
        *word = *word & !(bits << place.low) | (value & bits) << place.low;
    }

    pub fn parse(&mut self) -> Parsed {
        let thread = self.thread;
        let mut at = thread.start;
        loop {
            let state = &thread.states[at];
            for statement in &state.body {
                if !self.statement(statement) {
                    return Parsed::Short;
                }
            }
            let bits = self.packet.len() * 8 - self.parsed;
            let ends = |value: &Expression| matches!(value, Expression::Ahead(from, to) if bits < (from + to) as usize);
            if state.select.iter().any(ends) {
                return Parsed::Short;
            }
            let values: Vec<u64> = state.select.iter().map(|value| self.value(value)).collect();
            let fits = |matches: &[Ternary]| {
                values.iter().zip(matches).all(|(value, wanted)| value & wanted.mask == wanted.value)
            };
            let case = state.cases.iter().find(|(matches, _)| fits(matches));
            match case.map(|(_, next)| next) {
                Some(Next::State(next)) => at = *next,
                Some(Next::Accept) => return Parsed::Accepted,
                Some(Next::Reject) | None => return Parsed::Rejected,
            }
        }
    }

    pub fn control(&mut self) {
        let thread = self.thread;
        self.block(&thread.control);
    }

    /// The packet as it leaves the thread: valid headers, and what was not parsed.
    pub fn deparse(mut self) -> Vec<u8> {
        let thread = self.thread;
        self.block(&thread.deparser);
        let mut out = self.out;
        // Parsers take whole bytes.
        out.extend(&self.packet[(self.parsed / 8).min(self.packet.len())..]);
        out
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            assert!(self.statement(statement), "only parsers extract");
        }
    }

    fn take(&mut self, bits: u32) -> u64 {
        let value = self.look_ahead(0, bits);
        self.parsed += bits as usize;
        value
    }

    /// Bits of the packet, so many behind what has been parsed.
    fn look_ahead(&self, from: u32, bits: u32) -> u64 {
        let from = self.parsed + from as usize;
        let bit = |at: usize| u64::from(self.packet[at / 8] >> (7 - at % 8) & 1);
        (from..from + bits as usize).fold(0, |value, at| value << 1 | bit(at))
    }

    /// False if the packet ends before what is to be extracted.
    fn statement(&mut self, statement: &Statement) -> bool {
        match statement {
            Statement::Set(place, value) => {
                let value = self.value(value);
                self.write(*place, value);
            }
            Statement::Copy(to, from) => {
                let headers = &self.thread.headers;
                let (to, from) = (&headers[*to], &headers[*from]);
                self.places[to.valid] = self.places[from.valid];
                for (to, from) in to.fields.iter().zip(&from.fields) {
                    self.places[to.at] = self.places[from.at];
                }
            }
            Statement::Validity(header, valid) => {
                let header = &self.thread.headers[*header];
                let before = std::mem::replace(&mut self.places[header.valid], u64::from(*valid));
                // As P4 has it: what is in the fields of a header that comes or goes is anything.
                if before != u64::from(*valid) && !self.keeping.contains(&header.name.as_str()) {
                    for field in &header.fields {
                        self.places[field.at] = self.random.u64(..) & mask(field.high + 1);
                    }
                }
            }
            Statement::If(condition, yes, no) => {
                let block = if self.value(condition) == 1 { yes } else { no };
                for statement in block {
                    self.statement(statement);
                }
            }
            Statement::Apply(table) => {
                self.apply(*table);
            }
            Statement::Call(action, arguments) => self.call(*action, arguments),
            Statement::Evaluate(value) => {
                self.value(value);
            }
            Statement::Count(counter, index) => {
                let index = self.value(index) as usize;
                let counted = &mut self.pipe.counters[*counter];
                let name = &self.program.counters[*counter].name;
                let cell = counted.get_mut(index).unwrap_or_else(|| panic!("{name} has no {index}"));
                (cell.0, cell.1) = (cell.0 + 1, cell.1 + self.length);
            }
            Statement::Extract(header) => {
                let header = &self.thread.headers[*header];
                if self.packet.len() * 8 < self.parsed + header.bits() as usize {
                    return false;
                }
                for field in &header.fields {
                    self.places[field.at] = self.take(field.high + 1);
                }
                self.places[header.valid] = 1;
            }
            Statement::ExtractIntrinsic => {}
            Statement::Advance(bits) => {
                if self.packet.len() * 8 < self.parsed + *bits as usize {
                    return false;
                }
                self.parsed += *bits as usize;
            }
            Statement::Emit(headers) => {
                for header in headers {
                    let header = &self.thread.headers[*header];
                    if self.places[header.valid] == 1 {
                        let fields: Vec<(u64, u32)> = header
                            .fields
                            .iter()
                            .map(|field| (self.places[field.at], field.high + 1))
                            .collect();
                        self.out.extend(bytes(&fields));
                    }
                }
            }
            Statement::Add(header) => {
                let fields = &self.thread.headers[*header].fields;
                let fields: Vec<(u64, u32)> =
                    fields.iter().map(|field| (self.places[field.at], field.high + 1)).collect();
                self.sum += words(&fields);
            }
        }
        true
    }

    /// Whether a row was hit.
    fn apply(&mut self, table: usize) -> bool {
        let known = &self.program.tables[table];
        let key: Vec<u64> = known.key.iter().map(|(_, value, _, _)| self.value(value)).collect();
        let tables = self.pipe.tables;
        let fits = |fields: &[Ternary]| {
            key.iter().zip(fields).all(|(value, field)| value & field.mask == field.value)
        };
        let of_program = known.entries.iter().find(|(fields, _)| fits(fields)).map(|(_, call)| call);
        let hit: Option<&Call> = of_program.or_else(|| tables.rows[table].get(&key));
        let (action, arguments) = hit.unwrap_or(&tables.defaults[table]);
        self.row = (table, key);
        self.call(*action, arguments);
        hit.is_some()
    }

    fn call(&mut self, action: usize, arguments: &[u64]) {
        let action = &self.program.actions[action];
        assert_eq!(action.parameters.len(), arguments.len(), "arguments of {}", action.name);
        for ((_, place), &value) in action.parameters.iter().zip(arguments) {
            self.write(*place, value);
        }
        for statement in &action.body {
            self.statement(statement);
        }
    }

    fn execute(&mut self, action: usize, index: u64, second: Option<Place>) -> u64 {
        let action = &self.program.register_actions[action];
        let name = &self.program.registers[action.register].name;
        assert!(self.met.insert(action.register), "{name} is met twice by one packet");
        let index = index as usize;
        let cells = &self.pipe.registers[action.register];
        let cell = *cells.get(index).unwrap_or_else(|| panic!("{name} has no cell {index}"));
        for (place, word) in action.value.iter().zip(cell) {
            self.places[place.at] = word;
        }
        // What is not given a value is 0: a chip's output is then not driven.
        for place in &action.results {
            self.places[place.at] = 0;
        }
        for statement in &action.body {
            self.statement(statement);
        }
        let mut after = cell;
        for (place, word) in action.value.iter().zip(&mut after) {
            *word = self.places[place.at];
        }
        self.pipe.registers[action.register][index] = after;
        let results: Vec<u64> = action.results.iter().map(|place| self.places[place.at]).collect();
        if let (Some(place), Some(&value)) = (second, results.get(1)) {
            self.write(place, value);
        }
        results.first().copied().unwrap_or(0)
    }

    /// What the meter says of one more packet of the row that was hit last: green, or red.
    fn color(&mut self) -> u64 {
        let Some(&most) = self.pipe.tables.meters.get(&self.row) else { return 0 };
        let passed = self.pipe.metered.entry(self.row.clone()).or_default();
        let green = *passed < most;
        *passed += u64::from(green);
        if green { 0 } else { RED }
    }

    fn value(&mut self, value: &Expression) -> u64 {
        match value {
            Expression::Constant(value) => *value,
            Expression::Read(place) => self.places[place.at] >> place.low & mask(place.high - place.low + 1),
            Expression::Slice(value, high, low) => self.value(value) >> low & mask(high - low + 1),
            Expression::Not(value) => 1 - self.value(value),
            Expression::Inverse(value, bits) => !self.value(value) & bits.mask(),
            Expression::Negative(value, bits) => self.value(value).wrapping_neg() & bits.mask(),
            Expression::Two(operator, a, b, bits) => {
                let left = self.value(a);
                match operator {
                    // These look no further if they need not.
                    Operator::Or if left == 1 => 1,
                    Operator::And if left == 0 => 0,
                    _ => {
                        let right = self.value(b);
                        two(*operator, left, right, *bits)
                    }
                }
            }
            Expression::Cast(value, from, to) => {
                let value = self.value(value);
                (if from.signed { sign_extend(value, *from) as u64 } else { value }) & to.mask()
            }
            Expression::Execute(action, index, second) => {
                let index = self.value(index);
                self.execute(*action, index, *second)
            }
            Expression::Meter => self.color(),
            Expression::Hit(table) => u64::from(self.apply(*table)),
            Expression::Ahead(from, bits) => self.look_ahead(*from, *bits),
            Expression::Verify => u64::from(fold(self.sum) != 0xFFFF),
            Expression::Checksum(fields) => {
                let fields: Vec<(u64, u32)> =
                    fields.iter().map(|(value, bits)| (self.value(value), *bits)).collect();
                u64::from(!(fold(words(&fields)) as u16))
            }
        }
    }
}

/// A signed number.
fn sign_extend(value: u64, bits: Bits) -> i64 {
    (value << (64 - bits.bits)) as i64 >> (64 - bits.bits)
}

fn two(operator: Operator, a: u64, b: u64, bits: Bits) -> u64 {
    let order = if bits.signed { sign_extend(a, bits).cmp(&sign_extend(b, bits)) } else { a.cmp(&b) };
    match operator {
        Operator::Or => a | b,
        Operator::And => a & b,
        Operator::Equal => u64::from(order.is_eq()),
        Operator::Differs => u64::from(order.is_ne()),
        Operator::Less => u64::from(order.is_lt()),
        Operator::Greater => u64::from(order.is_gt()),
        Operator::LessOrEqual => u64::from(order.is_le()),
        Operator::GreaterOrEqual => u64::from(order.is_ge()),
        Operator::BitOr => a | b,
        Operator::BitXor => a ^ b,
        Operator::BitAnd => a & b,
        Operator::Left => a.checked_shl(b as u32).unwrap_or(0) & bits.mask(),
        Operator::Right => {
            assert!(!bits.signed, "a signed shift");
            a.checked_shr(b as u32).unwrap_or(0)
        }
        Operator::Plus => a.wrapping_add(b) & bits.mask(),
        Operator::Minus => a.wrapping_sub(b) & bits.mask(),
        Operator::SaturatingMinus => {
            assert!(!bits.signed, "signed saturation");
            a.saturating_sub(b)
        }
        Operator::SaturatingPlus => {
            assert!(!bits.signed, "signed saturation");
            a.saturating_add(b).min(bits.mask())
        }
        Operator::Concatenation => a << bits.bits | b,
        Operator::Maximum => {
            if order.is_ge() {
                a
            } else {
                b
            }
        }
    }
}

/// Fields one behind the other.
fn bytes(fields: &[(u64, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut held, mut bits) = (0u128, 0);
    for &(value, width) in fields {
        held = held << width | u128::from(value);
        bits += width;
        while bits >= 8 {
            bits -= 8;
            out.push((held >> bits) as u8);
        }
        held &= (1 << bits) - 1;
    }
    assert_eq!(bits, 0, "a header of broken bytes");
    out
}

/// The sum of their 16-bit words.
fn words(fields: &[(u64, u32)]) -> u64 {
    bytes(fields).chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn fold(mut sum: u64) -> u64 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}
