//! A program as it is run: fields, headers, registers and actions are indices.

use std::collections::HashMap;

/// The ones of a number of bits.
#[must_use]
pub fn mask(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// A header's field; those of more than 128 bits are several.
#[derive(Clone, Debug)]
pub struct Field {
    pub bits: u32,
    pub header: usize,
}

#[derive(Clone, Debug)]
pub struct Header {
    pub name: String,
    /// Metadata is neither parsed nor sent, and begins as zero.
    pub is_metadata: bool,
    pub first: usize,
    pub fields: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    BothTrue,
    EitherTrue,
}

/// Numbers have 128 bits and wrap; p4c masks what it computes. A bool is 0 or 1.
#[derive(Clone, Debug)]
pub enum Expression {
    Constant(u128),
    Field(usize),
    IsValid(usize),
    Argument(usize),
    Two(Operator, Box<Expression>, Box<Expression>),
    Invert(Box<Expression>),
    Not(Box<Expression>),
    IsSet(Box<Expression>),
    Choose(Box<Expression>, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Debug)]
pub enum Statement {
    Assign(usize, Expression),
    AddHeader(usize),
    RemoveHeader(usize),
    CopyHeader { to: usize, from: usize },
    ReadRegister { to: usize, register: usize, index: Expression },
    WriteRegister { register: usize, index: Expression, value: Expression },
    Count { counter: usize, index: Expression },
    PopFront { stack: usize, count: usize },
    MarkToDrop,
    Recirculate { fields: usize },
    Truncate(Expression),
    Exit,
}

#[derive(Clone, Debug)]
pub struct Action {
    pub name: String,
    /// Names and bits.
    pub parameters: Vec<(String, u32)>,
    pub body: Vec<Statement>,
}

/// An action and its arguments.
pub type Call = (usize, Vec<u128>);

#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub key: Vec<usize>,
    pub actions: Vec<usize>,
    pub size: usize,
    pub default: Call,
    pub next: Next,
}

/// What a table leads to.
#[derive(Clone, Debug)]
pub enum Next {
    Hit { hit: Option<Node>, miss: Option<Node> },
    Action(HashMap<usize, Option<Node>>),
}

#[derive(Clone, Copy, Debug)]
pub enum Node {
    Table(usize),
    Condition(usize),
}

#[derive(Clone, Debug)]
pub struct Condition {
    pub test: Expression,
    pub when_true: Option<Node>,
    pub when_false: Option<Node>,
}

#[derive(Clone, Debug)]
pub enum ParserStep {
    Extract(usize),
    /// Into the next element of a stack.
    ExtractNext(usize),
    Set(usize, Expression),
}

#[derive(Clone, Debug)]
pub struct Transition {
    pub value: u128,
    pub mask: u128,
    /// `None` accepts.
    pub to: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct State {
    pub steps: Vec<ParserStep>,
    pub key: Vec<usize>,
    pub transitions: Vec<Transition>,
}

#[derive(Clone, Debug)]
pub struct Checksum {
    pub target: usize,
    pub input: Vec<usize>,
    pub condition: Expression,
    pub is_verified: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Program {
    pub fields: Vec<Field>,
    pub headers: Vec<Header>,
    /// The headers of each stack.
    pub stacks: Vec<Vec<usize>>,
    pub states: Vec<State>,
    pub start: usize,
    pub actions: Vec<Action>,
    pub tables: Vec<Table>,
    pub conditions: Vec<Condition>,
    pub ingress: Option<Node>,
    pub egress: Option<Node>,
    pub checksums: Vec<Checksum>,
    pub emitted: Vec<usize>,
    /// By the number that `recirculate` gives.
    pub kept: HashMap<usize, Vec<usize>>,
    /// Name, cells and bits.
    pub registers: Vec<(String, usize, u32)>,
    /// Name and cells.
    pub counters: Vec<(String, usize)>,
    /// Fields of `standard_metadata`, by name.
    pub standard: HashMap<String, usize>,
}
