//! Makes Rust of the contract: the rows of `generated::enums!` and `generated::structs!`, and those of
//! `service::service!`.
//!
//! The contract is read by the same code with which the program reads it to show messages.

#![allow(clippy::print_stdout, reason = "that is how a build script speaks")]

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[allow(dead_code, unreachable_pub)]
#[path = "schema.rs"]
mod schema;

use schema::{FieldSchema, Kind, Schema, ServiceSchema, StructId, schema};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=schema.rs");
    println!("cargo::rerun-if-changed=ClusterManager.thrift");
    let directory = env::var("OUT_DIR")?;
    let write = |file, text| fs::write(Path::new(&directory).join(file), text);
    write("structs.rs", structs(schema()))?;
    write("services.rs", services(schema())?)?;
    Ok(())
}

/// The structs that are declared; the others are those of methods.
fn declared(schema: &Schema) -> impl Iterator<Item = &schema::StructSchema> {
    let methods = || schema.services().iter().flat_map(|service| &service.methods);
    let of_methods: Vec<StructId> =
        methods().flat_map(|method| [method.args, method.result]).collect();
    let own = [schema.empty(), schema.application_exception()];
    let structs = schema.structs();
    structs.filter(move |(id, _)| !of_methods.contains(id) && !own.contains(id)).map(|(_, s)| s)
}

fn structs(schema: &Schema) -> String {
    let mut text = String::from("enums! {\n");
    for one in schema.enums() {
        let values = one.values.iter().map(|(name, number)| format!("{name} = {number}"));
        let values: Vec<_> = values.collect();
        append(&mut text, format_args!("    {} {{ {} }}\n", one.name, values.join(", ")));
    }
    text.push_str("}\nstructs! {\n");
    for one in declared(schema) {
        let fields = one.fields.iter().map(|field| {
            let need = if field.required { "required" } else { "optional" };
            let kind = type_of(schema, &field.kind);
            format!("{} {need} {}: {kind}", field.id, snake_case(&field.name))
        });
        let fields: Vec<_> = fields.collect();
        append(&mut text, format_args!("    {} {{ {} }}\n", one.name, fields.join(", ")));
    }
    text + "}\n"
}

fn services(schema: &Schema) -> Result<String, String> {
    let mut text = String::new();
    for service in schema.services() {
        let annotation = |name: &str| {
            let found = service.annotations.iter().find(|(key, _)| key == name);
            let missing = || format!("{} has no annotation {name}", service.name);
            found.map(|(_, value)| value.as_str()).ok_or_else(missing)
        };
        let (name, stream) = (annotation("rs.name")?, pascal_case(annotation("stream")?));
        append(
            &mut text,
            format_args!(
                "\nservice! {{\n    /// `{wire}` of the contract.\n    \
                 {name}, {name}Call, {name}Reply = \"{wire}\", {stream};\n",
                wire = service.name
            ),
        );
        rows(&mut text, schema, service);
        text.push_str("}\n");
    }
    Ok(text)
}

fn rows(text: &mut String, schema: &Schema, service: &ServiceSchema) {
    for method in &service.methods {
        let (rust, variant) = (snake_case(&method.name), pascal_case(&method.name));
        append(text, format_args!("    {rust} \"{}\" {variant}", method.name));
        let arguments = schema.structure(method.args).fields.iter().map(|field| {
            let kind = type_of(schema, &field.kind);
            // Only fields that Java keeps in a primitive are always present.
            let kind = if field.kind == Kind::Bool { kind } else { format!("Option<{kind}>") };
            format!("{} {}: {kind}", field.id, rust_name(field))
        });
        let arguments: Vec<_> = arguments.collect();
        if !arguments.is_empty() {
            append(text, format_args!(" {{ {} }}", arguments.join(", ")));
        }
        let (values, exceptions): (Vec<_>, Vec<_>) =
            schema.structure(method.result).fields.iter().partition(|field| field.id == 0);
        for value in values {
            append(text, format_args!(" -> (value: {})", type_of(schema, &value.kind)));
        }
        let exceptions =
            exceptions.iter().map(|field| format!("{} {}", field.id, type_of(schema, &field.kind)));
        let exceptions: Vec<_> = exceptions.collect();
        if !exceptions.is_empty() {
            append(text, format_args!(" throws [{}]", exceptions.join(", ")));
        }
        text.push_str(";\n");
    }
}

fn append(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes everything");
}

fn rust_name(field: &FieldSchema) -> String {
    let named = field.annotations.iter().find(|(key, _)| key == "rs.name");
    named.map_or_else(|| snake_case(&field.name), |(_, value)| value.clone())
}

fn type_of(schema: &Schema, kind: &Kind) -> String {
    match kind {
        Kind::Bool => "bool".to_owned(),
        Kind::I16 => "i16".to_owned(),
        Kind::I32 => "i32".to_owned(),
        Kind::I64 => "i64".to_owned(),
        Kind::String => "String".to_owned(),
        Kind::Enum(id) => schema.enumeration(*id).name.clone(),
        Kind::Struct(id) => schema.structure(*id).name.clone(),
        Kind::List(element) => format!("Vec<{}>", type_of(schema, element)),
        Kind::Map(key, value) => {
            format!("BTreeMap<{}, {}>", type_of(schema, key), type_of(schema, value))
        }
    }
}

/// As Thrift's compiler names fields: `memoryMB` is `memory_m_b`, and `type` is `type_`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    if snake == "type" { "type_".to_owned() } else { snake }
}

fn pascal_case(name: &str) -> String {
    let (first, rest) = name.split_at(1.min(name.len()));
    first.to_ascii_uppercase() + rest
}
