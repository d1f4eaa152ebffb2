//! Reads expressions, statements, tables and states.

use super::lex::Token;
use super::program::{Bits, Call, Expression, Next, Operator, Place, State, Statement, Table, Ternary, mask};
use super::read::{BOOL, Kind, Named, Reader, bits};

/// An expression and its type.
pub(super) type Value = (Expression, Bits);

/// Operators from those that bind least; the sign, and what it is.
const LEVELS: [&[(&str, Operator)]; 9] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[("==", Operator::Equal), ("!=", Operator::Differs)],
    &[
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("|", Operator::BitOr)],
    &[("^", Operator::BitXor)],
    &[("&", Operator::BitAnd)],
    &[("<<", Operator::Left), (">>", Operator::Right)],
    &[
        ("++", Operator::Concatenation),
        ("|-|", Operator::SaturatingMinus),
        ("|+|", Operator::SaturatingPlus),
        ("+", Operator::Plus),
        ("-", Operator::Minus),
    ],
];

impl Reader {
    pub(super) fn expression(&mut self) -> Value {
        self.level(0)
    }

    /// The operator that stands here, of a level.
    fn operator(&mut self, level: usize) -> Option<Operator> {
        let twice = self.is(">") && matches!(self.token_after(1), Token::Sign(">"));
        for &(sign, operator) in LEVELS[level] {
            if sign == ">>" && twice {
                self.next();
                self.next();
                return Some(operator);
            }
            if sign == ">" && twice {
                continue;
            }
            if self.take(sign) {
                return Some(operator);
            }
        }
        None
    }

    fn level(&mut self, level: usize) -> Value {
        if level == LEVELS.len() {
            return self.unary();
        }
        let (mut left, mut type_) = self.level(level + 1);
        while let Some(operator) = self.operator(level) {
            let (right, other) = self.level(level + 1);
            use Operator::{
                And, Concatenation, Differs, Equal, Greater, GreaterOrEqual, Left, Less, LessOrEqual, Or,
                Right,
            };
            let shift = matches!(operator, Left | Right);
            if operator != Concatenation && !shift && type_ != other {
                self.fail(&format!("{operator:?} of {type_:?} and {other:?}"));
            }
            let of = if operator == Concatenation { other } else { type_ };
            left = Expression::Two(operator, Box::new(left), Box::new(right), of);
            type_ = match operator {
                Or | And | Equal | Differs | Less | Greater | LessOrEqual | GreaterOrEqual => BOOL,
                Concatenation => bits(type_.bits + other.bits),
                _ => type_,
            };
        }
        (left, type_)
    }

    fn unary(&mut self) -> Value {
        if self.take("!") {
            let (value, type_) = self.unary();
            return (Expression::Not(Box::new(value)), type_);
        }
        if self.take("~") {
            let (value, type_) = self.unary();
            return (Expression::Inverse(Box::new(value), type_), type_);
        }
        if self.take("-") {
            let (value, type_) = self.unary();
            return (Expression::Negative(Box::new(value), type_), type_);
        }
        if self.is("(") {
            self.next();
            if self.is_word("packet") {
                return self.look_ahead();
            }
            if self.is_type() {
                let Kind::Bits(to) = self.kind() else { self.fail("a cast to a struct") };
                self.expect(")");
                let (value, from) = self.unary();
                return (Expression::Cast(Box::new(value), from, to), to);
            }
            let inner = self.expression();
            self.expect(")");
            return self.slice(inner);
        }
        if let Token::Number(width, signed, value) = *self.peek() {
            self.next();
            // How far to shift, which has no bits said.
            let width = width.unwrap_or(64);
            return (Expression::Constant(value & mask(width)), Bits { bits: width, signed });
        }
        if self.take_word("true") {
            return (Expression::Constant(1), BOOL);
        }
        if self.take_word("false") {
            return (Expression::Constant(0), BOOL);
        }
        if self.take_word("max") {
            self.skip_types();
            self.expect("(");
            let (a, type_) = self.expression();
            self.expect(",");
            let (b, _) = self.expression();
            self.expect(")");
            return (Expression::Two(Operator::Maximum, Box::new(a), Box::new(b), type_), type_);
        }
        let value = self.named_value();
        self.slice(value)
    }

    /// `packet.lookahead<header>()).field`, as the front end has it: the bracket in front is taken already.
    fn look_ahead(&mut self) -> Value {
        let path = self.path();
        self.expect("<");
        let (true, Kind::Header(fields)) = (path == ["packet", "lookahead"], self.kind()) else {
            self.fail("no header that is looked at")
        };
        [">", "(", ")", ")", "."].iter().for_each(|sign| self.expect(sign));
        let wanted = self.word();
        let mut from = 0;
        for (name, kind) in fields {
            let Kind::Bits(type_) = kind else { self.fail("a header of structs") };
            if name == wanted {
                return (Expression::Ahead(from, type_.bits), type_);
            }
            from += type_.bits;
        }
        self.fail("no such field")
    }

    fn slice(&mut self, (value, type_): Value) -> Value {
        if !self.take("[") {
            return (value, type_);
        }
        let high = self.number() as u32;
        self.expect(":");
        let low = self.number() as u32;
        self.expect("]");
        (Expression::Slice(Box::new(value), high, low), bits(high - low + 1))
    }

    /// `a.b.c`, as far as it is names.
    fn path(&mut self) -> Vec<String> {
        let mut path = vec![self.word()];
        while self.take(".") {
            path.push(self.word());
        }
        path
    }

    /// A variable, or what a method gives back.
    fn named_value(&mut self) -> Value {
        let mut path = self.path();
        if let Some(value) = self.variable(&path) {
            return value;
        }
        let Some(method) = path.pop() else { self.fail("no name") };
        if let (Some(header), "isValid") = (self.header(&path), method.as_str()) {
            self.expect("(");
            self.expect(")");
            let at = self.thread.headers[header].valid;
            return (Expression::Read(Place { at, high: 0, low: 0 }), BOOL);
        }
        let Some(&named) = self.named.get(&path.join(".")) else {
            self.fail(&format!("no {path:?}.{method}"))
        };
        match (named, method.as_str()) {
            (Named::Table(table), "apply") => {
                self.expect("(");
                self.expect(")");
                self.expect(".");
                self.expect_word("hit");
                (Expression::Hit(table), BOOL)
            }
            (Named::RegisterAction(action), "execute") => {
                self.expect("(");
                let (index, _) = self.expression();
                let second = if self.take(",") { Some(self.target()) } else { None };
                self.expect(")");
                let results = &self.program.register_actions[action].results;
                let width = results.first().map_or(1, |first| first.high + 1);
                (Expression::Execute(action, Box::new(index), second), bits(width))
            }
            (Named::Meter, "execute") => {
                self.expect("(");
                self.expect(")");
                (Expression::Meter, bits(8))
            }
            (Named::Checksum, "verify") => {
                self.expect("(");
                self.expect(")");
                (Expression::Verify, BOOL)
            }
            (Named::Checksum, "update") => {
                self.skip_types();
                self.expect("(");
                self.expect("{");
                let mut fields = Vec::new();
                while !self.take("}") {
                    let (value, type_) = self.expression();
                    fields.push((value, type_.bits));
                    self.take(",");
                }
                self.expect(")");
                (Expression::Checksum(fields), bits(16))
            }
            _ => self.fail(&format!("no value {method}")),
        }
    }

    /// What can be written to.
    fn target(&mut self) -> Place {
        let path = self.path();
        let Some((Expression::Read(place), _)) = self.variable(&path) else {
            self.fail("nothing to write to")
        };
        self.part_of(place)
    }

    fn part_of(&mut self, place: Place) -> Place {
        if !self.take("[") {
            return place;
        }
        let high = self.number() as u32;
        self.expect(":");
        let low = self.number() as u32;
        self.expect("]");
        Place { high, low, ..place }
    }

    pub(super) fn statements(&mut self) -> Vec<Statement> {
        self.expect("{");
        let mut body = Vec::new();
        while !self.take("}") {
            self.statement(&mut body);
        }
        body
    }

    fn statement(&mut self, body: &mut Vec<Statement>) {
        if self.take(";") {
            return;
        }
        if self.is("{") {
            body.extend(self.statements());
            return;
        }
        if self.take_word("if") {
            self.expect("(");
            let (condition, _) = self.expression();
            self.expect(")");
            let (mut yes, mut no) = (Vec::new(), Vec::new());
            self.statement(&mut yes);
            if self.take_word("else") {
                self.statement(&mut no);
            }
            body.push(Statement::If(condition, yes, no));
            return;
        }
        let start = self.position();
        let mut path = self.path();
        if self.is("=") || self.is("[") {
            body.push(self.assignment(&path));
            self.expect(";");
            return;
        }
        self.skip_types();
        let Some(method) = path.pop() else { self.fail("no statement") };
        self.expect("(");
        let statement = match (method.as_str(), self.header(&path), self.named.get(&path.join(".")).copied())
        {
            ("setValid", Some(header), _) => Statement::Validity(header, true),
            ("setInvalid", Some(header), _) => Statement::Validity(header, false),
            ("apply", _, Some(Named::Table(table))) => Statement::Apply(table),
            ("execute", _, Some(Named::RegisterAction(_))) => {
                self.back_to(start);
                let (value, _) = self.expression();
                self.expect(";");
                body.push(Statement::Evaluate(value));
                return;
            }
            ("count", _, Some(Named::Counter(counter))) => Statement::Count(counter, self.expression().0),
            ("extract", ..) => {
                let path = self.path();
                self.header(&path).map_or(Statement::ExtractIntrinsic, Statement::Extract)
            }
            ("advance", ..) => Statement::Advance(self.number()),
            ("emit", ..) => {
                let path = self.path();
                Statement::Emit(self.headers(&path))
            }
            ("add", _, Some(Named::Checksum)) => {
                let path = self.path();
                let Some(header) = self.header(&path) else { self.fail("no header") };
                Statement::Add(header)
            }
            (name, None, None) if path.is_empty() => {
                let Some(&Named::Action(action)) = self.named.get(name) else { self.fail("no such action") };
                Statement::Call(action, self.arguments())
            }
            _ => self.fail(&format!("no method {method}")),
        };
        if !matches!(statement, Statement::Call(..)) {
            self.expect(")");
        }
        self.expect(";");
        body.push(statement);
    }

    fn assignment(&mut self, path: &[String]) -> Statement {
        if let Some(to) = self.header(path) {
            self.expect("=");
            let from = self.path();
            let Some(from) = self.header(&from) else { self.fail("no header") };
            return Statement::Copy(to, from);
        }
        let Some((Expression::Read(place), _)) = self.variable(path) else {
            self.fail(&format!("no {path:?}"))
        };
        let place = self.part_of(place);
        self.expect("=");
        let (value, type_) = self.expression();
        if type_.bits != place.high - place.low + 1 {
            self.fail("another number of bits");
        }
        Statement::Set(place, value)
    }

    /// Constants in brackets, the opening one taken already.
    fn arguments(&mut self) -> Vec<u64> {
        let mut values = Vec::new();
        while !self.take(")") {
            values.push(self.constant());
            self.take(",");
        }
        values
    }

    fn constant(&mut self) -> u64 {
        let (Expression::Constant(value), _) = self.unary() else { self.fail("no constant") };
        value
    }

    fn call(&mut self) -> Call {
        let name = self.word();
        let Some(&Named::Action(action)) = self.named.get(&name) else { self.fail("no action") };
        let arguments = if self.take("(") { self.arguments() } else { Vec::new() };
        (action, arguments)
    }

    pub(super) fn table(&mut self, said: Option<String>) -> Table {
        self.next();
        let own = self.word();
        let mut table = Table {
            name: said.unwrap_or_else(|| own.clone()),
            key: Vec::new(),
            actions: Vec::new(),
            size: 0,
            default: (0, Vec::new()),
            entries: Vec::new(),
            constant: false,
        };
        self.named.insert(own, Named::Table(self.program.tables.len()));
        self.expect("{");
        while !self.take("}") {
            let constant = self.take_word("const");
            let what = self.word();
            self.expect("=");
            match what.as_str() {
                "key" => {
                    self.expect("{");
                    while !self.take("}") {
                        let (value, type_) = self.expression();
                        self.expect(":");
                        let ternary = self.word() == "ternary";
                        let name = self.annotations().unwrap_or_default();
                        self.expect(";");
                        table.key.push((name, value, type_.bits, ternary));
                    }
                }
                "actions" => {
                    self.expect("{");
                    while !self.take("}") {
                        self.annotations();
                        let (action, _) = self.call();
                        table.actions.push(action);
                        self.expect(";");
                    }
                }
                "size" => {
                    table.size = self.number();
                    self.expect(";");
                }
                "meters" => {
                    self.word();
                    self.expect(";");
                }
                "default_action" => {
                    table.default = self.call();
                    self.expect(";");
                }
                "entries" => {
                    table.constant = constant;
                    self.expect("{");
                    while !self.take("}") {
                        let fields = self.fields();
                        self.expect(":");
                        let call = self.call();
                        self.expect(";");
                        if fields.len() != table.key.len() {
                            self.fail("another number of fields");
                        }
                        table.entries.push((fields, call));
                    }
                }
                _ => self.fail("an unknown property of a table"),
            }
        }
        table
    }

    /// What fields must be: one, or several in brackets.
    fn fields(&mut self) -> Vec<Ternary> {
        let several = self.take("(");
        let mut fields = vec![self.field()];
        while several && self.take(",") {
            fields.push(self.field());
        }
        if several {
            self.expect(")");
        }
        fields
    }

    fn field(&mut self) -> Ternary {
        if self.take_word("default") || self.take_word("_") {
            return Ternary { value: 0, mask: 0 };
        }
        let value = self.constant();
        let mask = if self.take("&&&") { self.constant() } else { u64::MAX };
        Ternary { value: value & mask, mask }
    }

    pub(super) fn state(&mut self) {
        self.next();
        let number = {
            let name = self.word();
            if name == "start" {
                self.thread.start = self.state_number("start");
            }
            self.state_number(&name)
        };
        self.expect("{");
        let mut body = Vec::new();
        while !self.is_word("transition") {
            self.statement(&mut body);
        }
        self.next();
        let mut state = State { body, select: Vec::new(), cases: Vec::new() };
        if self.take_word("select") {
            self.expect("(");
            while !self.take(")") {
                state.select.push(self.expression().0);
                self.take(",");
            }
            self.expect("{");
            while !self.take("}") {
                let matches = self.case(state.select.len());
                self.expect(":");
                let next = self.goal();
                state.cases.push((matches, next));
            }
        } else {
            let next = self.goal();
            state.cases.push((Vec::new(), next));
        }
        self.expect("}");
        self.add_state(number, state);
    }

    fn case(&mut self, fields: usize) -> Vec<Ternary> {
        if self.is_word("default") {
            self.next();
            return vec![Ternary { value: 0, mask: 0 }; fields];
        }
        self.fields()
    }

    fn goal(&mut self) -> Next {
        let name = self.word();
        self.expect(";");
        match name.as_str() {
            "accept" => Next::Accept,
            "reject" => Next::Reject,
            _ => Next::State(self.state_number(&name)),
        }
    }
}
