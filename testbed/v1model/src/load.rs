//! Reads p4c's output for BMv2.

use super::program::{
    Action, Call, Checksum, Condition, Expression, Field, Header, Next, Node, Operator, ParserStep, Program,
    State, Statement, Table, Transition,
};
use serde_json::Value;
use std::collections::HashMap;

/// Bits of a part of a long field.
const PART: u32 = 128;

/// What names mean while a program is read.
struct Loader<'a> {
    json: &'a Value,
    program: Program,
    headers: HashMap<String, usize>,
    fields: HashMap<(String, String), usize>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}"))
}

fn count(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}")) as usize
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn hex(value: &Value) -> u128 {
    let digits = text(value).trim_start_matches("0x");
    u128::from_str_radix(digits, 16).unwrap_or_else(|why| panic!("{value}: {why}"))
}

/// The place of the element of `list` that has this name.
fn position(list: &Value, name: &str) -> usize {
    let found = array(list).iter().position(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("nothing is called {name}"))
}

/// A program in p4c's JSON for BMv2: `p4/build/thc.json`.
///
/// # Panics
/// If p4c has begun to use something that the interpreter does not know.
#[must_use]
pub fn load(json: &[u8]) -> Program {
    let json: Value = serde_json::from_slice(json).unwrap_or_else(|why| panic!("p4/build/thc.json: {why}"));
    let mut loader =
        Loader { json: &json, program: Program::default(), headers: HashMap::new(), fields: HashMap::new() };
    loader.headers();
    loader.arrays();
    loader.parser();
    loader.actions();
    loader.pipelines();
    loader.checksums();
    loader.program
}

impl Loader<'_> {
    fn headers(&mut self) {
        let json = self.json;
        for header in array(&json["headers"]) {
            let kind =
                &array(&json["header_types"])[position(&json["header_types"], text(&header["header_type"]))];
            let (number, name) = (self.program.headers.len(), text(&header["name"]));
            let first = self.program.fields.len();
            for field in array(&kind["fields"]) {
                let mut bits = field[1].as_u64().unwrap_or_else(|| panic!("{field}: no width")) as u32;
                let place = (name.to_owned(), text(&field[0]).to_owned());
                if name == "standard_metadata" {
                    self.program.standard.insert(place.1.clone(), self.program.fields.len());
                }
                if bits <= PART {
                    self.fields.insert(place, self.program.fields.len());
                }
                while bits > 0 {
                    let part = bits.min(PART);
                    self.program.fields.push(Field { bits: part, header: number });
                    bits -= part;
                }
            }
            let fields = self.program.fields.len() - first;
            let is_metadata = header["metadata"] == true;
            self.headers.insert(name.to_owned(), number);
            self.program.headers.push(Header { name: name.to_owned(), is_metadata, first, fields });
        }
        for stack in array(&json["header_stacks"]) {
            self.program.stacks.push(array(&stack["header_ids"]).iter().map(count).collect());
        }
    }

    fn arrays(&mut self) {
        let json = self.json;
        for register in array(&json["register_arrays"]) {
            let size = (
                text(&register["name"]).to_owned(),
                count(&register["size"]),
                count(&register["bitwidth"]) as u32,
            );
            self.program.registers.push(size);
        }
        for counter in array(&json["counter_arrays"]) {
            self.program.counters.push((text(&counter["name"]).to_owned(), count(&counter["size"])));
        }
        for list in array(&json["field_lists"]) {
            let fields =
                array(&list["elements"]).iter().map(|element| self.field(&element["value"])).collect();
            self.program.kept.insert(count(&list["id"]), fields);
        }
    }

    fn field(&self, value: &Value) -> usize {
        let place = (text(&value[0]).to_owned(), text(&value[1]).to_owned());
        *self.fields.get(&place).unwrap_or_else(|| panic!("no field {place:?}"))
    }

    fn header(&self, value: &Value) -> usize {
        *self.headers.get(text(value)).unwrap_or_else(|| panic!("no header {value}"))
    }

    fn expression(&self, value: &Value) -> Expression {
        let inner = &value["value"];
        match value["type"].as_str() {
            Some("expression") => self.expression(inner),
            Some("hexstr") => Expression::Constant(hex(inner)),
            Some("bool") => Expression::Constant(u128::from(*inner == true)),
            Some("runtime_data") => Expression::Argument(count(inner)),
            Some("field") if inner[1] == "$valid$" => Expression::IsValid(self.header(&inner[0])),
            Some("field") => Expression::Field(self.field(inner)),
            Some(other) => panic!("an expression of type {other}"),
            None => self.operation(value),
        }
    }

    fn operation(&self, value: &Value) -> Expression {
        let of = |name: &str| Box::new(self.expression(&value[name]));
        let operator = match text(&value["op"]) {
            "d2b" => return Expression::IsSet(of("right")),
            "b2d" => return *of("right"),
            "not" => return Expression::Not(of("right")),
            "~" => return Expression::Invert(of("right")),
            "?" => return Expression::Choose(of("cond"), of("left"), of("right")),
            "+" => Operator::Add,
            "-" => Operator::Subtract,
            "&" => Operator::And,
            "|" => Operator::Or,
            "^" => Operator::Xor,
            "<<" => Operator::ShiftLeft,
            ">>" => Operator::ShiftRight,
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            ">" => Operator::Greater,
            "<=" => Operator::LessOrEqual,
            ">=" => Operator::GreaterOrEqual,
            "and" => Operator::BothTrue,
            "or" => Operator::EitherTrue,
            other => panic!("the operator {other}"),
        };
        Expression::Two(operator, of("left"), of("right"))
    }

    fn parser(&mut self) {
        let parser = &self.json["parsers"][0];
        let states = &parser["parse_states"];
        self.program.start = position(states, text(&parser["init_state"]));
        for state in array(states) {
            let step = |step: &Value| {
                let given = &step["parameters"];
                match text(&step["op"]) {
                    "extract" if given[0]["type"] == "stack" => ParserStep::ExtractNext(position(
                        &self.json["header_stacks"],
                        text(&given[0]["value"]),
                    )),
                    "extract" => ParserStep::Extract(self.header(&given[0]["value"])),
                    "set" => ParserStep::Set(self.field(&given[0]["value"]), self.expression(&given[1])),
                    other => panic!("the parser's {other}"),
                }
            };
            let transition = |transition: &Value| {
                let (value, mask) = match text(&transition["type"]) {
                    "default" => (0, 0),
                    "hexstr" if transition["mask"].is_null() => (hex(&transition["value"]), u128::MAX),
                    "hexstr" => (hex(&transition["value"]), hex(&transition["mask"])),
                    other => panic!("a transition of type {other}"),
                };
                let to = transition["next_state"].as_str().map(|name| position(states, name));
                Transition { value, mask, to }
            };
            self.program.states.push(State {
                steps: array(&state["parser_ops"]).iter().map(step).collect(),
                key: array(&state["transition_key"]).iter().map(|key| self.field(&key["value"])).collect(),
                transitions: array(&state["transitions"]).iter().map(transition).collect(),
            });
        }
        let order = array(&self.json["deparsers"][0]["order"]);
        self.program.emitted = order.iter().map(|name| self.header(name)).collect();
    }

    fn statement(&self, statement: &Value) -> Statement {
        let given = |at: usize| &statement["parameters"][at];
        let named = |at: usize| &given(at)["value"];
        let array_of = |list: &str, at: usize| position(&self.json[list], text(named(at)));
        match text(&statement["op"]) {
            "assign" => Statement::Assign(self.field(named(0)), self.expression(given(1))),
            "add_header" => Statement::AddHeader(self.header(named(0))),
            "remove_header" => Statement::RemoveHeader(self.header(named(0))),
            "assign_header" => {
                Statement::CopyHeader { to: self.header(named(0)), from: self.header(named(1)) }
            }
            "register_read" => Statement::ReadRegister {
                to: self.field(named(0)),
                register: array_of("register_arrays", 1),
                index: self.expression(given(2)),
            },
            "register_write" => Statement::WriteRegister {
                register: array_of("register_arrays", 0),
                index: self.expression(given(1)),
                value: self.expression(given(2)),
            },
            "count" => {
                Statement::Count { counter: array_of("counter_arrays", 0), index: self.expression(given(1)) }
            }
            "pop" => {
                Statement::PopFront { stack: array_of("header_stacks", 0), count: hex(named(1)) as usize }
            }
            "mark_to_drop" => Statement::MarkToDrop,
            "recirculate" => Statement::Recirculate { fields: hex(named(0)) as usize },
            "truncate" => Statement::Truncate(self.expression(given(0))),
            "exit" => Statement::Exit,
            other => panic!("the primitive {other}"),
        }
    }

    fn actions(&mut self) {
        for action in array(&self.json["actions"]) {
            let parameter = |data: &Value| (text(&data["name"]).to_owned(), count(&data["bitwidth"]) as u32);
            self.program.actions.push(Action {
                name: text(&action["name"]).to_owned(),
                parameters: array(&action["runtime_data"]).iter().map(parameter).collect(),
                body: array(&action["primitives"]).iter().map(|one| self.statement(one)).collect(),
            });
        }
    }

    fn pipelines(&mut self) {
        // Tables and conditions of both pipelines have one numbering, and names of their own.
        let (mut tables, mut conditions) = (Vec::new(), Vec::new());
        for pipeline in array(&self.json["pipelines"]) {
            tables.extend(array(&pipeline["tables"]));
            conditions.extend(array(&pipeline["conditionals"]));
        }
        let node = |name: &Value| -> Option<Node> {
            let name = name.as_str()?;
            let table = tables.iter().position(|table| table["name"] == name).map(Node::Table);
            let condition = || conditions.iter().position(|one| one["name"] == name).map(Node::Condition);
            Some(table.or_else(condition).unwrap_or_else(|| panic!("no node {name}")))
        };
        for table in &tables {
            assert!(table["entries"].is_null() && table["match_type"] == "exact", "{}", table["name"]);
            let actions: Vec<usize> = array(&table["action_ids"]).iter().map(count).collect();
            let default = &table["default_entry"];
            let default: Call =
                (count(&default["action_id"]), array(&default["action_data"]).iter().map(hex).collect());
            let next = &table["next_tables"];
            let next = if next.get("__HIT__").is_some() {
                Next::Hit { hit: node(&next["__HIT__"]), miss: node(&next["__MISS__"]) }
            } else {
                let names = array(&table["actions"]).iter().map(text);
                Next::Action(actions.iter().copied().zip(names.map(|name| node(&next[name]))).collect())
            };
            self.program.tables.push(Table {
                name: text(&table["name"]).to_owned(),
                key: array(&table["key"]).iter().map(|key| self.field(&key["target"])).collect(),
                actions,
                size: count(&table["max_size"]),
                default,
                next,
            });
        }
        for condition in &conditions {
            self.program.conditions.push(Condition {
                test: self.expression(&condition["expression"]),
                when_true: node(&condition["true_next"]),
                when_false: node(&condition["false_next"]),
            });
        }
        let pipelines = &self.json["pipelines"];
        let begin = |name: &str| node(&pipelines[position(pipelines, name)]["init_table"]);
        (self.program.ingress, self.program.egress) = (begin("ingress"), begin("egress"));
    }

    fn checksums(&mut self) {
        for checksum in array(&self.json["checksums"]) {
            let calculations = &self.json["calculations"];
            let calculation = &calculations[position(calculations, text(&checksum["calculation"]))];
            assert_eq!(calculation["algo"], "csum16");
            let input: Vec<usize> =
                array(&calculation["input"]).iter().map(|input| self.field(&input["value"])).collect();
            let bits: u32 = input.iter().map(|&field| self.program.fields[field].bits).sum();
            assert!(bits.is_multiple_of(16), "a checksum over {bits} bits");
            self.program.checksums.push(Checksum {
                target: self.field(&checksum["target"]),
                input,
                condition: self.expression(&checksum["if_cond"]),
                is_verified: checksum["verify"] == true,
            });
        }
    }
}
