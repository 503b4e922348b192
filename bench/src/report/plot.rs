//! Plots, as SVG.

use plotters::prelude::*;
use serde_json::Value;
use std::error::Error;
use std::path::Path;

const SIZE: (u32, u32) = (800, 460);

/// Medians of engine and ring by the size of a group, in groups that wait for each other.
pub(super) fn latency_by_size(path: &Path, rows: &Value) -> Result<(), Box<dyn Error>> {
    let rows: Vec<&Value> = super::list(rows)
        .iter()
        .filter(|row| !super::is_busy(row))
        .collect();
    let series = |key: &str| {
        let mut points: Vec<(f64, f64)> = (rows.iter())
            .filter_map(|row| Some((row["group_bytes"].as_f64()?, row[key].as_f64()?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let lines = [
        ("engine", BLUE, series("engine_p50_us")),
        ("bare ring", RED, series("raw_p50_us")),
    ];
    let highest = lines
        .iter()
        .flat_map(|(_, _, points)| points)
        .map(|point| point.1);
    let top = highest.fold(1.0, f64::max) * 1.1;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("median latency of a durable group", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d((200.0..1_500_000.0).log_scale(), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("bytes of batches in a group")
        .y_desc("microseconds")
        .x_label_formatter(&|bytes| format!("{bytes:.0}"))
        .draw()?;
    for (name, color, points) in lines {
        let marks = points
            .iter()
            .map(|point| Circle::new(*point, 3, color.filled()));
        chart.draw_series(marks)?;
        chart
            .draw_series(LineSeries::new(points.clone(), color))?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
