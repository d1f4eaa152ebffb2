//! Reads what p4c's front end makes of a program for TNA: one flat control for ingress and one for egress, types said
//! everywhere. It is P4 itself, so this is a reader of as much of the language as is left then; it panics at the rest.

use super::expression::Value;
use super::lex::{Token, tokens};
use super::program::{Action, Bits, Counter, Header, Place, Program, Register, RegisterAction, Thread};
use std::collections::BTreeMap;

/// What a type's name stands for.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Bits(Bits),
    Struct(Vec<(String, Kind)>),
    Header(Vec<(String, Kind)>),
}

/// What a name means where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Action(usize),
    Table(usize),
    RegisterAction(usize),
    Register(usize),
    Counter(usize),
    Meter,
    Checksum,
}

/// What a block is to the architecture.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Parser,
    Control,
    Deparser,
}

/// Names of blocks' parameters by place, the same in all blocks of a thread.
const PARAMETERS: [(Role, [&str; 6]); 3] = [
    (Role::Parser, ["packet", "hdr", "meta", "intrinsic", "parsed", ""]),
    (Role::Control, ["hdr", "meta", "intrinsic", "parsed", "deparser", "manager"]),
    (Role::Deparser, ["packet", "hdr", "meta", "deparser", "", ""]),
];

pub(super) const BOOL: Bits = Bits { bits: 1, signed: false };

pub(super) fn bits(bits: u32) -> Bits {
    Bits { bits, signed: false }
}

/// As much of the architecture's own types as programs here read or write.
fn architecture() -> BTreeMap<String, Kind> {
    let one = |name: &str, width| (name.to_owned(), Kind::Bits(bits(width)));
    let of = |fields: Vec<(String, Kind)>| Kind::Struct(fields);
    let mut types: BTreeMap<String, Kind> = BTreeMap::new();
    let mut say = |name: &str, kind| types.insert(name.to_owned(), kind);
    say("PortId_t", Kind::Bits(bits(9)));
    // Of the first chip they have fewer.
    say("QueueId_t", Kind::Bits(bits(7)));
    say("ingress_intrinsic_metadata_t", of(vec![one("ingress_port", 9)]));
    say(
        "egress_intrinsic_metadata_t",
        of(vec![one("egress_port", 9), one("egress_rid", 16), one("deq_qdepth", 19)]),
    );
    for gress in ["ingress", "egress"] {
        say(&format!("{gress}_intrinsic_metadata_from_parser_t"), of(vec![one("parser_err", 16)]));
        say(&format!("{gress}_intrinsic_metadata_for_deparser_t"), of(vec![one("drop_ctl", 3)]));
    }
    let manager = vec![one("ucast_egress_port", 9), one("qid", 7), one("mcast_grp_a", 16)];
    say("ingress_intrinsic_metadata_for_tm_t", of(manager));
    say("egress_intrinsic_metadata_for_output_port_t", of(Vec::new()));
    types
}

/// Where the reader is, and what it knows.
pub(super) struct Reader {
    tokens: Vec<(Token, usize)>,
    at: usize,
    types: BTreeMap<String, Kind>,
    pub(super) program: Program,
    /// The thread in hand.
    pub(super) thread: Thread,
    /// Of the block in hand: its own names for what all blocks of the thread share, and names of its own.
    pub(super) local: BTreeMap<String, String>,
    pub(super) named: BTreeMap<String, Named>,
    states: BTreeMap<String, usize>,
    blocks: Vec<String>,
}

/// Reads a program.
///
/// # Panics
/// At what it does not know.
#[must_use]
pub fn read(text: &str) -> Program {
    let tokens = tokens(text);
    let blocks = blocks(&tokens);
    let mut reader = Reader {
        tokens,
        at: 0,
        types: architecture(),
        program: Program::default(),
        thread: Thread::default(),
        local: BTreeMap::new(),
        named: BTreeMap::new(),
        states: BTreeMap::new(),
        blocks,
    };
    while reader.at < reader.tokens.len() {
        reader.declaration();
    }
    reader.program
}

/// That a program can be read.
///
/// # Panics
/// If it cannot.
pub fn check(text: &str) {
    let _ = read(text);
}

/// The six blocks of a pipe, in the architecture's order.
fn blocks(tokens: &[(Token, usize)]) -> Vec<String> {
    let start = tokens.iter().position(|(token, _)| *token == Token::Word("Pipeline".to_owned()));
    let mut found = Vec::new();
    for window in tokens[start.expect("no Pipeline")..].windows(3) {
        if let [(Token::Word(name), _), (Token::Sign("("), _), (Token::Sign(")"), _)] = window {
            found.push(name.clone());
        }
    }
    assert_eq!(found.len(), 6, "blocks of a pipe: {found:?}");
    found
}

impl Reader {
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn back_to(&mut self, position: usize) {
        self.at = position;
    }

    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub(super) fn token_after(&self, places: usize) -> &Token {
        &self.tokens[self.at + places].0
    }

    pub(super) fn next(&mut self) -> Token {
        self.at += 1;
        self.tokens[self.at - 1].0.clone()
    }

    pub(super) fn fail(&self, what: &str) -> ! {
        let (token, line) = &self.tokens[self.at.min(self.tokens.len() - 1)];
        panic!("line {line}: {what}, at {token:?}")
    }

    pub(super) fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(other) if *other == sign)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(other) if other == word)
    }

    pub(super) fn take(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        self.at += usize::from(is);
        is
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        self.at += usize::from(is);
        is
    }

    pub(super) fn expect(&mut self, sign: &str) {
        if !self.take(sign) {
            self.fail(&format!("no {sign}"));
        }
    }

    pub(super) fn expect_word(&mut self, word: &str) {
        if !self.take_word(word) {
            self.fail(&format!("no {word}"));
        }
    }

    pub(super) fn word(&mut self) -> String {
        match self.next() {
            Token::Word(word) => word,
            _ => {
                self.at -= 1;
                self.fail("no name")
            }
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        match self.next() {
            Token::Number(_, _, value) => value,
            _ => {
                self.at -= 1;
                self.fail("no number")
            }
        }
    }

    /// Passes over brackets and what is in them.
    pub(super) fn skip(&mut self, open: &str, close: &str) {
        self.expect(open);
        let mut depth = 1;
        while depth > 0 {
            depth += i32::from(self.is(open)) - i32::from(self.is(close));
            self.at += 1;
        }
    }

    /// Annotations; what `@name` says.
    pub(super) fn annotations(&mut self) -> Option<String> {
        let mut name = None;
        while self.take("@") {
            let which = self.word();
            if let (true, Token::Text(text)) = (which == "name" && self.is("("), self.token_after(1)) {
                name = Some(text.clone());
            }
            if self.is("(") {
                self.skip("(", ")");
            }
        }
        name
    }

    fn declaration(&mut self) {
        self.annotations();
        let Token::Word(word) = self.peek().clone() else { self.fail("no declaration") };
        match word.as_str() {
            "typedef" => {
                self.next();
                let kind = self.kind();
                let name = self.word();
                self.expect(";");
                self.types.insert(name, kind);
            }
            "header" | "struct" => {
                self.next();
                let name = self.word();
                let mut fields = Vec::new();
                self.expect("{");
                while !self.take("}") {
                    let kind = self.kind();
                    fields.push((self.word(), kind));
                    self.expect(";");
                }
                let kind = if word == "header" { Kind::Header(fields) } else { Kind::Struct(fields) };
                self.types.insert(name, kind);
            }
            "parser" | "control" => self.block(),
            // Which blocks make a pipe has been looked up.
            "Pipeline" | "Switch" => {
                while !self.take(";") {
                    self.next();
                }
            }
            _ => self.fail("an unknown declaration"),
        }
    }

    pub(super) fn kind(&mut self) -> Kind {
        let name = self.word();
        match name.as_str() {
            "bit" | "int" => {
                self.expect("<");
                let width = self.number() as u32;
                self.expect(">");
                Kind::Bits(Bits { bits: width, signed: name == "int" })
            }
            "bool" => Kind::Bits(BOOL),
            _ => self.types.get(&name).cloned().unwrap_or_else(|| self.fail(&format!("no type {name}"))),
        }
    }

    /// Whether a name is one of a type.
    pub(super) fn is_type(&self) -> bool {
        matches!(self.peek(), Token::Word(word)
            if matches!(word.as_str(), "bit" | "int" | "bool") || self.types.contains_key(word))
    }

    /// Gives a variable its places, unless it has them.
    pub(super) fn lay_out(&mut self, name: &str, kind: &Kind) -> Vec<Place> {
        match kind {
            Kind::Bits(type_) => {
                // Words of a form that no program here looks into.
                assert!(type_.bits <= 64, "{name} has {} bits", type_.bits);
                let at = self.thread.widths.len();
                let place = *self
                    .thread
                    .names
                    .entry(name.to_owned())
                    .or_insert((Place { at, high: type_.bits - 1, low: 0 }, *type_));
                if place.0.at == at {
                    self.thread.widths.push(type_.bits);
                }
                vec![place.0]
            }
            Kind::Struct(fields) => fields
                .iter()
                .flat_map(|(field, kind)| self.lay_out(&format!("{name}.{field}"), kind))
                .collect(),
            Kind::Header(fields) => {
                let valid = self.lay_out(&format!("{name}.$valid$"), &Kind::Bits(BOOL))[0].at;
                let places: Vec<Place> = fields
                    .iter()
                    .flat_map(|(field, kind)| self.lay_out(&format!("{name}.{field}"), kind))
                    .collect();
                if !self.thread.headers.iter().any(|header| header.name == name) {
                    self.thread.headers.push(Header { name: name.to_owned(), valid, fields: places.clone() });
                }
                places
            }
        }
    }

    fn block(&mut self) {
        self.next();
        let name = self.word();
        let place = self.blocks.iter().position(|block| *block == name);
        let place = place.unwrap_or_else(|| self.fail("a block that is none of the pipe's"));
        let role = [Role::Parser, Role::Control, Role::Deparser][place % 3];
        let thread = if place < 3 { &mut self.program.ingress } else { &mut self.program.egress };
        self.thread = std::mem::take(thread);
        self.local.clear();
        self.named.clear();
        self.states.clear();
        let canonical = PARAMETERS.iter().find(|(of, _)| *of == role).map_or([""; 6], |(_, names)| *names);
        self.expect("(");
        for canonical in canonical {
            if self.take(")") {
                break;
            }
            self.annotations();
            for direction in ["inout", "in", "out"] {
                self.take_word(direction);
            }
            if self.take_word("packet_in") || self.take_word("packet_out") {
                self.word();
            } else {
                let kind = self.kind();
                let own = self.word();
                self.lay_out(canonical, &kind);
                self.local.insert(own, canonical.to_owned());
            }
            self.take(",");
        }
        self.take(")");
        self.expect("{");
        if role == Role::Parser {
            self.count_states();
        }
        while !self.take("}") {
            self.member(role);
        }
        let thread = std::mem::take(&mut self.thread);
        *(if place < 3 { &mut self.program.ingress } else { &mut self.program.egress }) = thread;
    }

    /// Parsers go to states that come later.
    fn count_states(&mut self) {
        let (mut at, mut depth) = (self.at, 0);
        while depth >= 0 {
            match &self.tokens[at].0 {
                Token::Sign("{") => depth += 1,
                Token::Sign("}") => depth -= 1,
                Token::Word(word) if word == "state" && depth == 0 => {
                    if let Token::Word(name) = &self.tokens[at + 1].0 {
                        let number = self.states.len();
                        self.states.insert(name.clone(), number);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn member(&mut self, role: Role) {
        let said = self.annotations();
        let Token::Word(word) = self.peek().clone() else { self.fail("no member of a block") };
        match word.as_str() {
            "action" => self.action(said),
            "table" => {
                let table = self.table(said);
                self.program.tables.push(table);
            }
            "state" => self.state(),
            "apply" => {
                self.next();
                let body = self.statements();
                match role {
                    Role::Deparser => self.thread.deparser = body,
                    _ => self.thread.control = body,
                }
            }
            "Register" => {
                self.next();
                self.expect("<");
                // One word or a pair.
                self.kind();
                self.expect(",");
                self.kind();
                self.expect(">");
                self.expect("(");
                let size = self.number();
                // What it holds at first: zeros.
                while !self.take(")") {
                    match self.next() {
                        Token::Number(_, _, value) => {
                            assert_eq!(value, 0, "a register that does not begin with 0");
                        }
                        Token::Sign("(") => {
                            self.word();
                            self.expect(")");
                        }
                        _ => {}
                    }
                }
                let name = self.word();
                self.expect(";");
                self.named.insert(name.clone(), Named::Register(self.program.registers.len()));
                self.program.registers.push(Register { name: said.unwrap_or(name), size });
            }
            "RegisterAction" | "RegisterAction2" => self.register_action(),
            "Counter" => {
                self.next();
                self.skip("<", ">");
                self.expect("(");
                let size = self.number();
                while !self.take(")") {
                    self.next();
                }
                let name = self.word();
                self.expect(";");
                self.named.insert(name.clone(), Named::Counter(self.program.counters.len()));
                self.program.counters.push(Counter { name: said.unwrap_or(name), size });
            }
            "Checksum" | "DirectMeter" => {
                self.next();
                self.skip("(", ")");
                let name = self.word();
                self.expect(";");
                self.named.insert(name, if word == "Checksum" { Named::Checksum } else { Named::Meter });
            }
            _ => {
                let kind = self.kind();
                let name = self.word();
                self.expect(";");
                self.lay_out(&name, &kind);
            }
        }
    }

    fn action(&mut self, said: Option<String>) {
        self.next();
        let name = self.word();
        let mut parameters = Vec::new();
        self.expect("(");
        while !self.take(")") {
            let outside = self.annotations();
            let kind = self.kind();
            let own = self.word();
            // Names of parameters are the front end's, and there is one of each in a block.
            let place = self.lay_out(&own, &kind)[0];
            parameters.push((outside.unwrap_or(own), place));
            self.take(",");
        }
        let body = self.statements();
        self.named.insert(name.clone(), Named::Action(self.program.actions.len()));
        self.program.actions.push(Action { name: said.unwrap_or(name), parameters, body });
    }

    fn register_action(&mut self) {
        self.next();
        self.skip_types();
        self.expect("(");
        let register = self.word();
        let Some(&Named::Register(register)) = self.named.get(&register) else { self.fail("no register") };
        self.expect(")");
        let name = self.word();
        self.expect("=");
        self.expect("{");
        self.expect_word("void");
        self.expect_word("apply");
        self.expect("(");
        let outside = self.local.clone();
        let (mut value, mut results) = (Vec::new(), Vec::new());
        while !self.take(")") {
            let result = self.take_word("out");
            if !result {
                self.expect_word("inout");
            }
            let kind = self.kind();
            let own = self.word();
            let inside = format!("{name}/{own}");
            let places = self.lay_out(&inside, &kind);
            self.local.insert(own, inside);
            if result {
                results.extend(places);
            } else {
                value = places;
            }
            self.take(",");
        }
        let body = self.statements();
        self.local = outside;
        self.expect("}");
        self.expect(";");
        self.named.insert(name, Named::RegisterAction(self.program.register_actions.len()));
        self.program.register_actions.push(RegisterAction { register, value, results, body });
    }

    /// The types that something generic is made of.
    pub(super) fn skip_types(&mut self) {
        if self.is("<") {
            self.skip("<", ">");
        }
    }

    pub(super) fn state_number(&self, name: &str) -> usize {
        *self.states.get(name).unwrap_or_else(|| self.fail(&format!("no state {name}")))
    }

    /// What a variable or field is called in the thread.
    pub(super) fn canonical(&self, path: &[String]) -> String {
        let Some(first) = path.first() else { return String::new() };
        let first = self.local.get(first).unwrap_or(first);
        let rest = path[1..].iter().map(|part| format!(".{part}"));
        [first.clone()].into_iter().chain(rest).collect()
    }

    /// A variable of bits, if there is one of the name.
    pub(super) fn variable(&self, path: &[String]) -> Option<Value> {
        let &(place, type_) = self.thread.names.get(&self.canonical(path))?;
        Some((super::program::Expression::Read(place), type_))
    }

    pub(super) fn header(&self, path: &[String]) -> Option<usize> {
        let name = self.canonical(path);
        self.thread.headers.iter().position(|header| header.name == name)
    }

    /// All headers of a struct, in order.
    pub(super) fn headers(&self, path: &[String]) -> Vec<usize> {
        let name = self.canonical(path);
        let within = format!("{name}.");
        let is = |header: &Header| header.name == name || header.name.starts_with(&within);
        (0..self.thread.headers.len()).filter(|&at| is(&self.thread.headers[at])).collect()
    }

    pub(super) fn add_state(&mut self, number: usize, state: super::program::State) {
        let empty = || super::program::State { body: Vec::new(), select: Vec::new(), cases: Vec::new() };
        let states = &mut self.thread.states;
        while states.len() <= number {
            states.push(empty());
        }
        states[number] = state;
    }
}
