//! One packet's way through parser, a pipeline and deparser.

use super::program::{
    Checksum, Expression, Next, Node, Operator, ParserStep, Program, Statement, Table, mask,
};
use super::switch::State;
use fastrand::Rng;

/// The port that means "nowhere" in BMv2.
pub const DROP: u128 = 511;

/// Errors of a parser by number, as BMv2 has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParserError {
    PacketTooShort = 1,
    NoMatch = 2,
    StackOutOfBounds = 3,
}

/// The fields of a packet, and what the program wants done with it.
#[derive(Clone, Debug)]
pub struct Packet {
    pub values: Vec<u128>,
    pub valid: Vec<bool>,
    /// What no header has taken.
    pub payload: Vec<u8>,
    pub recirculated: Option<usize>,
    pub truncated: Option<usize>,
}

/// What makes a packet go on, while it is in a pipeline.
pub struct Run<'a> {
    pub program: &'a Program,
    pub state: &'a mut State,
    pub packet: &'a mut Packet,
}

impl Packet {
    /// Before its parser: metadata is zero, and fields of headers that are not there are anything.
    pub fn new(program: &Program, random: &mut Rng) -> Packet {
        let value = |field: &super::program::Field| {
            if program.headers[field.header].is_metadata { 0 } else { random.u128(..) & mask(field.bits) }
        };
        Packet {
            values: program.fields.iter().map(value).collect(),
            valid: program.headers.iter().map(|header| header.is_metadata).collect(),
            payload: Vec::new(),
            recirculated: None,
            truncated: None,
        }
    }

    pub fn standard(&self, program: &Program, name: &str) -> u128 {
        self.values[program.standard[name]]
    }

    pub fn set_standard(&mut self, program: &Program, name: &str, value: u128) {
        self.set(program, program.standard[name], value);
    }

    fn set(&mut self, program: &Program, field: usize, value: u128) {
        self.values[field] = value & mask(program.fields[field].bits);
    }

    /// Takes the headers from a frame; an error ends the parsing, and ingress hears of it.
    pub fn parse(&mut self, program: &Program, frame: &[u8]) {
        let mut at = 0;
        if let Err(error) = self.walk(program, frame, &mut at) {
            self.set_standard(program, "parser_error", error as u128);
        }
        self.payload = frame[at..].to_vec();
        let differs = |checksum: &&Checksum| {
            checksum.is_verified
                && self.evaluate(&checksum.condition, &[]) != 0
                && self.checksum(program, checksum) != self.values[checksum.target]
        };
        if program.checksums.iter().any(|checksum| differs(&checksum)) {
            self.set_standard(program, "checksum_error", 1);
        }
    }

    fn walk(&mut self, program: &Program, frame: &[u8], at: &mut usize) -> Result<(), ParserError> {
        let mut next = Some(program.start);
        let mut taken = vec![0; program.stacks.len()];
        while let Some(number) = next {
            let state = &program.states[number];
            for step in &state.steps {
                match step {
                    ParserStep::Extract(header) => self.extract(program, *header, frame, at)?,
                    ParserStep::ExtractNext(stack) => {
                        let element = program.stacks[*stack].get(taken[*stack]);
                        self.extract(program, *element.ok_or(ParserError::StackOutOfBounds)?, frame, at)?;
                        taken[*stack] += 1;
                    }
                    ParserStep::Set(field, value) => {
                        let value = self.evaluate(value, &[]);
                        self.set(program, *field, value);
                    }
                }
            }
            // Each field of the key begins at a byte.
            let key = state.key.iter().fold(0, |key: u128, &field| {
                key << (program.fields[field].bits.div_ceil(8) * 8) | self.values[field]
            });
            let found = state.transitions.iter().find(|one| key & one.mask == one.value & one.mask);
            next = found.ok_or(ParserError::NoMatch)?.to;
        }
        Ok(())
    }

    fn extract(
        &mut self,
        program: &Program,
        header: usize,
        frame: &[u8],
        at: &mut usize,
    ) -> Result<(), ParserError> {
        let fields =
            program.headers[header].first..program.headers[header].first + program.headers[header].fields;
        let bits: u32 = program.fields[fields.clone()].iter().map(|field| field.bits).sum();
        let bytes = frame.get(*at..*at + bits as usize / 8).ok_or(ParserError::PacketTooShort)?;
        let mut bit = 0;
        for field in fields {
            let end = bit + program.fields[field].bits as usize;
            self.values[field] =
                (bit..end).fold(0, |value, bit| value << 1 | u128::from(bytes[bit / 8] >> (7 - bit % 8) & 1));
            bit = end;
        }
        *at += bytes.len();
        self.valid[header] = true;
        Ok(())
    }

    /// The headers that are valid, and what was behind them.
    pub fn deparse(&mut self, program: &Program) -> Vec<u8> {
        for checksum in program.checksums.iter().filter(|checksum| !checksum.is_verified) {
            if self.evaluate(&checksum.condition, &[]) != 0 {
                let sum = self.checksum(program, checksum);
                self.set(program, checksum.target, sum);
            }
        }
        let mut bytes = Vec::new();
        for &header in program.emitted.iter().filter(|&&header| self.valid[header]) {
            let header = &program.headers[header];
            let (mut byte, mut bits) = (0, 0);
            for field in header.first..header.first + header.fields {
                for bit in (0..program.fields[field].bits).rev() {
                    byte = byte << 1 | (self.values[field] >> bit & 1) as u8;
                    bits += 1;
                    if bits % 8 == 0 {
                        bytes.push(byte);
                    }
                }
            }
            assert!(bits % 8 == 0, "{} has {bits} bits", header.name);
        }
        bytes.extend(&self.payload);
        bytes.truncate(self.truncated.unwrap_or(bytes.len()));
        bytes
    }

    /// The ones' complement sum of a checksum's fields (csum16).
    fn checksum(&self, program: &Program, checksum: &Checksum) -> u128 {
        let (mut sum, mut word, mut bits) = (0, 0, 0);
        for &field in &checksum.input {
            for bit in (0..program.fields[field].bits).rev() {
                word = word << 1 | self.values[field] >> bit & 1;
                bits += 1;
                if bits % 16 == 0 {
                    sum += word;
                    word = 0;
                }
            }
        }
        while sum > 0xFFFF {
            sum = (sum >> 16) + (sum & 0xFFFF);
        }
        !sum & 0xFFFF
    }

    fn evaluate(&self, expression: &Expression, arguments: &[u128]) -> u128 {
        let value = |expression: &Expression| self.evaluate(expression, arguments);
        match expression {
            Expression::Constant(value) => *value,
            Expression::Field(field) => self.values[*field],
            Expression::IsValid(header) => self.valid[*header].into(),
            Expression::Argument(number) => arguments[*number],
            Expression::Invert(inner) => !value(inner),
            Expression::Not(inner) => u128::from(value(inner) == 0),
            Expression::IsSet(inner) => u128::from(value(inner) != 0),
            Expression::Choose(test, yes, no) => value(if value(test) != 0 { yes } else { no }),
            Expression::Two(Operator::BothTrue, left, right) => {
                u128::from(value(left) != 0 && value(right) != 0)
            }
            Expression::Two(Operator::EitherTrue, left, right) => {
                u128::from(value(left) != 0 || value(right) != 0)
            }
            Expression::Two(operator, left, right) => {
                let (left, right) = (value(left), value(right));
                match operator {
                    Operator::Add => left.wrapping_add(right),
                    Operator::Subtract => left.wrapping_sub(right),
                    Operator::And => left & right,
                    Operator::Or => left | right,
                    Operator::Xor => left ^ right,
                    Operator::ShiftLeft => left.checked_shl(right.min(128) as u32).unwrap_or(0),
                    Operator::ShiftRight => left.checked_shr(right.min(128) as u32).unwrap_or(0),
                    Operator::Equal => u128::from(left == right),
                    Operator::NotEqual => u128::from(left != right),
                    Operator::Less => u128::from(left < right),
                    Operator::Greater => u128::from(left > right),
                    Operator::LessOrEqual => u128::from(left <= right),
                    Operator::GreaterOrEqual => u128::from(left >= right),
                    Operator::BothTrue | Operator::EitherTrue => unreachable!("evaluated above"),
                }
            }
        }
    }
}

impl Run<'_> {
    /// Goes from node to node until none follows, or an action ends the pipeline.
    pub fn pipeline(&mut self, begin: Option<Node>) {
        let mut next = begin;
        while let Some(node) = next {
            next = match node {
                Node::Condition(number) => {
                    let condition = &self.program.conditions[number];
                    if self.packet.evaluate(&condition.test, &[]) != 0 {
                        condition.when_true
                    } else {
                        condition.when_false
                    }
                }
                Node::Table(number) => {
                    let Some(next) = self.apply(number, &self.program.tables[number]) else { return };
                    next
                }
            };
        }
    }

    /// What follows a table; `None` if its action has ended the pipeline.
    fn apply(&mut self, number: usize, table: &Table) -> Option<Option<Node>> {
        let key: Vec<u128> = table.key.iter().map(|&field| self.packet.values[field]).collect();
        let row = if key.is_empty() { None } else { self.state.rows[number].get(&key) };
        let is_hit = row.is_some();
        let (action, arguments) = row.map_or(&self.state.defaults[number].0, |(call, _)| call).clone();
        for statement in &self.program.actions[action].body {
            if matches!(statement, Statement::Exit) {
                return None;
            }
            self.statement(statement, &arguments);
        }
        Some(match &table.next {
            Next::Hit { hit, miss } => {
                if is_hit {
                    *hit
                } else {
                    *miss
                }
            }
            Next::Action(next) => next[&action],
        })
    }

    fn statement(&mut self, statement: &Statement, arguments: &[u128]) {
        let program = self.program;
        let value = |packet: &Packet, expression: &Expression| packet.evaluate(expression, arguments);
        match statement {
            Statement::Assign(field, expression) => {
                let value = value(self.packet, expression);
                self.packet.set(program, *field, value);
            }
            Statement::AddHeader(header) => {
                if !self.packet.valid[*header] {
                    let header = &program.headers[*header];
                    self.packet.values[header.first..][..header.fields].fill(0);
                }
                self.packet.valid[*header] = true;
            }
            Statement::RemoveHeader(header) => self.packet.valid[*header] = false,
            Statement::CopyHeader { to, from } => self.copy(*to, *from),
            Statement::ReadRegister { to, register, index } => {
                let index = value(self.packet, index) as usize;
                let cell = self.state.registers[*register].get(index);
                let name = &program.registers[*register].0;
                let cell = *cell.unwrap_or_else(|| panic!("{name} has no cell {index}"));
                self.packet.set(program, *to, cell.into());
            }
            Statement::WriteRegister { register, index, value: given } => {
                let (index, given) = (value(self.packet, index) as usize, value(self.packet, given));
                let (name, _, bits) = &program.registers[*register];
                let cell = self.state.registers[*register].get_mut(index);
                *cell.unwrap_or_else(|| panic!("{name} has no cell {index}")) = (given & mask(*bits)) as u64;
            }
            Statement::Count { counter, index } => {
                let index = value(self.packet, index) as usize;
                let bytes = self.packet.standard(program, "packet_length") as u64;
                let name = &program.counters[*counter].0;
                let cell = self.state.counters[*counter].get_mut(index);
                let cell = cell.unwrap_or_else(|| panic!("{name} has no cell {index}"));
                *cell = (cell.0 + 1, cell.1 + bytes);
            }
            Statement::PopFront { stack, count } => {
                let stack = &program.stacks[*stack];
                for (place, &to) in stack.iter().enumerate() {
                    match stack.get(place + count) {
                        Some(&from) => self.copy(to, from),
                        None => self.packet.valid[to] = false,
                    }
                }
            }
            Statement::MarkToDrop => {
                self.packet.set_standard(program, "egress_spec", DROP);
                self.packet.set_standard(program, "mcast_grp", 0);
            }
            Statement::Recirculate { fields } => self.packet.recirculated = Some(*fields),
            Statement::Truncate(length) => self.packet.truncated = Some(value(self.packet, length) as usize),
            Statement::Exit => {}
        }
    }

    fn copy(&mut self, to: usize, from: usize) {
        let (source, target) = (&self.program.headers[from], &self.program.headers[to]);
        self.packet.valid[to] = self.packet.valid[from];
        if self.packet.valid[from] {
            self.packet.values.copy_within(source.first..source.first + source.fields, target.first);
        }
    }
}
