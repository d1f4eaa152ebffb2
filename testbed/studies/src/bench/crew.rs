//! The processes of a measurement: they read orders line by line, and answer in lines of JSON.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use thc_demo::demo::processes::{Children, Message};

use crate::error::{Error, Result};

/// Processes that get the same orders and answer all. Dropping them ends them.
pub struct Crew {
    children: Children,
    count: usize,
}

impl Crew {
    pub fn new(interrupted: &Arc<AtomicBool>) -> Self {
        Self { children: Children::new(Arc::clone(interrupted)), count: 0 }
    }

    /// Starts a process and gives it its first order, whose answer comes with [`Self::answers`].
    pub fn start(&mut self, name: String, command: &mut Command, order: &Value) -> Result<()> {
        self.count += 1;
        let number = self.children.start_with_orders(name, command)?;
        self.children.order(number, &order.to_string())
    }

    /// Gives all the same order, and returns their answers in the order in which they were started.
    pub fn ask(&mut self, order: &str) -> Result<Vec<Value>> {
        (0..self.count).try_for_each(|number| self.children.order(number, order))?;
        self.answers()
    }

    /// One answer of each.
    pub fn answers(&mut self) -> Result<Vec<Value>> {
        let mut answers = vec![None; self.count];
        while answers.iter().any(Option::is_none) {
            match self.children.message()? {
                (from, Message::Line(line)) => {
                    answers[from] = Some(serde_json::from_str(&line).map_err(Error::Event)?);
                }
                (from, Message::Closed) => return Err(self.children.ended(from)),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }
}
