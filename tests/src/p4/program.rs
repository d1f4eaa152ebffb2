//! A program as it is run: names are places in a thread's storage.

use std::collections::BTreeMap;

/// A number of bits, with a sign or without. A bool is one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    pub bits: u32,
    pub signed: bool,
}

impl Bits {
    #[must_use]
    pub fn mask(self) -> u64 {
        mask(self.bits)
    }
}

/// So many ones.
#[must_use]
pub fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Some bits of a place: the highest, the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub at: usize,
    pub high: u32,
    pub low: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Or,
    And,
    Equal,
    Differs,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    BitOr,
    BitXor,
    BitAnd,
    Left,
    Right,
    Plus,
    Minus,
    SaturatingMinus,
    SaturatingPlus,
    Concatenation,
    Maximum,
}

#[derive(Clone, Debug)]
pub enum Expression {
    Constant(u64),
    /// A place's bits.
    Read(Place),
    /// Bits of a value, the highest and the lowest.
    Slice(Box<Expression>, u32, u32),
    Not(Box<Expression>),
    /// All bits the other way round.
    Inverse(Box<Expression>, Bits),
    Negative(Box<Expression>, Bits),
    /// Of operands of this type; the second one's bits for a concatenation.
    Two(Operator, Box<Expression>, Box<Expression>, Bits),
    Cast(Box<Expression>, Bits, Bits),
    /// A register action at an index, and where its second result goes. Its value is the first.
    Execute(usize, Box<Expression>, Option<Place>),
    /// The colour that the meter of the row gives which has been hit last.
    Meter,
    /// Applies a table: whether a row was hit.
    Hit(usize),
    /// Of the packet, from so many bits behind what is parsed, so many.
    Ahead(u32, u32),
    /// Whether what was added to the checksum is wrong, as TNA has it: true of an error.
    Verify,
    /// The checksum of fields, with their bits.
    Checksum(Vec<(Expression, u32)>),
}

#[derive(Clone, Debug)]
pub enum Statement {
    Set(Place, Expression),
    /// Header from header, validity too.
    Copy(usize, usize),
    Validity(usize, bool),
    If(Expression, Vec<Statement>, Vec<Statement>),
    Apply(usize),
    /// An action with these arguments.
    Call(usize, Vec<u64>),
    /// A register action whose result nobody wants, or another expression.
    Evaluate(Expression),
    Count(usize, Expression),
    Extract(usize),
    /// The architecture's own, from beside the packet.
    ExtractIntrinsic,
    Advance(u64),
    /// All valid ones, in this order.
    Emit(Vec<usize>),
    /// A header, to the checksum.
    Add(usize),
}

#[derive(Clone, Debug)]
pub struct Action {
    pub name: String,
    /// By name.
    pub parameters: Vec<(String, Place)>,
    pub body: Vec<Statement>,
}

/// What a field of a key must be: equal in these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ternary {
    pub value: u64,
    pub mask: u64,
}

/// An action and its arguments.
pub type Call = (usize, Vec<u64>);

#[derive(Clone, Debug)]
pub struct Table {
    /// As the P4Info has it, without `pipe.`.
    pub name: String,
    /// Name, value and bits of each field, and whether it is ternary.
    pub key: Vec<(String, Expression, u32, bool)>,
    pub actions: Vec<usize>,
    pub size: u64,
    pub default: Call,
    /// The program's own rows, the first that fits counts.
    pub entries: Vec<(Vec<Ternary>, Call)>,
    pub constant: bool,
}

#[derive(Clone, Debug)]
pub struct Register {
    pub name: String,
    pub size: u64,
}

/// What is done to a cell of a register: one reading and one writing.
#[derive(Clone, Debug)]
pub struct RegisterAction {
    pub register: usize,
    /// The value while it is worked on.
    pub value: Vec<Place>,
    /// What it gives back.
    pub results: Vec<Place>,
    pub body: Vec<Statement>,
}

#[derive(Clone, Debug)]
pub struct Counter {
    pub name: String,
    pub size: u64,
}

#[derive(Clone, Debug)]
pub enum Next {
    State(usize),
    Accept,
    Reject,
}

#[derive(Clone, Debug)]
pub struct State {
    pub body: Vec<Statement>,
    pub select: Vec<Expression>,
    pub cases: Vec<(Vec<Ternary>, Next)>,
}

#[derive(Clone, Debug)]
pub struct Header {
    pub name: String,
    pub valid: usize,
    /// In order.
    pub fields: Vec<Place>,
}

impl Header {
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.fields.iter().map(|field| field.high + 1).sum()
    }
}

/// Ingress or egress: parser, control and deparser on one storage.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Bits of each place.
    pub widths: Vec<u32>,
    /// Places by name.
    pub names: BTreeMap<String, (Place, Bits)>,
    pub headers: Vec<Header>,
    pub states: Vec<State>,
    pub start: usize,
    pub control: Vec<Statement>,
    pub deparser: Vec<Statement>,
}

/// A compiled program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub ingress: Thread,
    pub egress: Thread,
    pub actions: Vec<Action>,
    pub tables: Vec<Table>,
    pub registers: Vec<Register>,
    pub register_actions: Vec<RegisterAction>,
    pub counters: Vec<Counter>,
}
