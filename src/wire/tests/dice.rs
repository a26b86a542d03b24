//! Messages of any shape that the contract allows, from a seed.

use corona_model::random::Random;

use crate::schema::{Kind, MethodSchema, StructSchema, schema};
use crate::value::{Message, MessageKind, Value};

/// Messages from a seed.
pub(super) struct Dice(Random);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(Random::new(seed))
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0.next()
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    fn value(&mut self, kind: &'static Kind) -> Value {
        match kind {
            Kind::Bool => Value::Bool(self.below(2) == 1),
            Kind::I16 => Value::I16(self.roll() as i16),
            Kind::I32 => Value::I32(self.roll() as i32),
            Kind::I64 => Value::I64(self.roll() as i64),
            Kind::String => {
                const LETTERS: [char; 6] = ['a', '.', '\0', 'ß', '文', '🦀'];
                let length = self.below(9);
                Value::String((0..length).map(|_| LETTERS[self.below(6)]).collect())
            }
            Kind::Enum(id) => {
                let values = &schema().enumeration(*id).values;
                let (name, number) = &values[self.below(values.len())];
                Value::Enum(*number, Some(name))
            }
            Kind::Struct(id) => self.structure(schema().structure(*id)),
            Kind::List(element) => {
                let length = self.below(4);
                Value::List((0..length).map(|_| self.value(element)).collect())
            }
            Kind::Map(key, value) => self.map(key, value),
        }
    }

    /// Keys ascend, as typed maps write them.
    fn map(&mut self, key: &'static Kind, value: &'static Kind) -> Value {
        let Kind::Enum(id) = key else { panic!("the contract has only enumerations as keys") };
        let mut pairs = vec![];
        for (name, number) in &schema().enumeration(*id).values {
            if self.below(2) == 0 {
                pairs.push((Value::Enum(*number, Some(name)), self.value(value)));
            }
        }
        Value::Map(pairs)
    }

    /// Required fields, truth values among arguments, and some of the others.
    fn structure(&mut self, of: &'static StructSchema) -> Value {
        let args = of.name.ends_with("_args");
        let mut fields = vec![];
        for field in &of.fields {
            let always = field.required || (args && field.kind == Kind::Bool);
            if always || self.below(2) == 0 {
                fields.push((field.name.as_str(), self.value(&field.kind)));
            }
        }
        Value::Struct(fields)
    }

    /// A call of a method.
    pub(super) fn call(&mut self, method: &'static MethodSchema) -> Message {
        let body = Ok(self.structure(schema().structure(method.args)));
        let seqid = self.roll() as i32;
        Message { kind: MessageKind::Call, name: method.name.clone(), seqid, body }
    }

    /// An answer with the field of the result at a place, or with none.
    pub(super) fn reply(&mut self, method: &'static MethodSchema, place: Option<usize>) -> Message {
        let fields = &schema().structure(method.result).fields;
        let field = place.and_then(|place| fields.get(place));
        let field = field.map(|field| (field.name.as_str(), self.value(&field.kind)));
        let body = Ok(Value::Struct(field.into_iter().collect()));
        let seqid = self.roll() as i32;
        Message { kind: MessageKind::Reply, name: method.name.clone(), seqid, body }
    }
}
