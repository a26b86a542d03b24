//! `/conf`: the configuration in force in the original's two forms. Spec: cluster-manager/08 §1.
//!
//! Only keys that the cluster manager looks at are in it, secrets hidden.

use std::fmt::Write;

use hyper::StatusCode;
use serde_json::json;

use super::exchange::{Answer, Parameters, respond, text};
use super::original::Escaped;
use corona_config::InForce;

pub(crate) fn answer(in_force: &[InForce], parameters: &Parameters) -> Answer {
    match parameters.get("format") {
        None | Some("xml") => respond(StatusCode::OK, "text/xml; charset=utf-8", xml(in_force)),
        Some("json") => {
            respond(StatusCode::OK, "text/javascript; charset=utf-8", as_json(in_force))
        }
        Some(other) => text(StatusCode::BAD_REQUEST, format!("Bad format: {other}\n")),
    }
}

fn xml(in_force: &[InForce]) -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?><configuration>\n",
    );
    for InForce { key, value, origin } in in_force {
        // Two hyphens would end the comment.
        let origin = origin.to_string().replace('-', "\u{2010}");
        // Writing to a string does not fail.
        let _ = writeln!(
            xml,
            "<property><!--Loaded from {origin}--><name>{}</name><value>{}</value></property>",
            Escaped(key),
            Escaped(&value.chars().filter(|character| is_xml(*character)).collect::<String>()),
        );
    }
    xml.push_str("</configuration>");
    xml
}

fn is_xml(character: char) -> bool {
    !character.is_control() || matches!(character, '\t' | '\n' | '\r')
}

fn as_json(in_force: &[InForce]) -> String {
    let properties: Vec<_> = in_force
        .iter()
        .map(|InForce { key, value, origin }| {
            json!({
                "key": key, "value": value, "isFinal": false, "resource": origin.to_string()
            })
        })
        .collect();
    json!({ "properties": properties }).to_string()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use corona_config as config;

    async fn get(query: &str) -> (StatusCode, String) {
        let overrides =
            [("cm.state", "a<b>\u{1}"), ("corona.cm.web.kill.token", "sixteen letters!")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let loaded = config::load(None, &overrides).unwrap();
        let answer = answer(&loaded.in_force, &Parameters::parse(query.as_bytes()));
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn both_forms_can_be_read_back() {
        for query in ["", "format=xml"] {
            let (status, xml) = get(query).await;
            assert_eq!(status, StatusCode::OK);
            let document = roxmltree::Document::parse(&xml).unwrap();
            let of = |name: &str| {
                let named = |node: &roxmltree::Node<'_, '_>| node.text() == Some(name);
                let name = document.descendants().find(|node| node.is_element() && named(node))?;
                name.next_sibling()?.text().map(str::to_owned)
            };
            assert_eq!(of("cm.state").as_deref(), Some("a<b>"));
            assert_eq!(of("corona.cm.web.kill.token").as_deref(), Some("(hidden)"));
        }
        let (_, json) = get("format=json").await;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let state = json["properties"].as_array().unwrap().iter().find(|p| p["key"] == "cm.state");
        assert_eq!(state.unwrap()["value"], "a<b>\u{1}");
        assert_eq!(state.unwrap()["resource"], "-D");
    }

    #[tokio::test]
    async fn other_forms_are_refused() {
        let refused = (StatusCode::BAD_REQUEST, "Bad format: yaml\n".to_owned());
        assert_eq!(get("format=yaml").await, refused);
    }
}
