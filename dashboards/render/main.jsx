// Draws one dashboard with Grafana's own components, from a real Prometheus. It is no Grafana: it knows the panels and
// variables that these dashboards have, and nothing else.
import { createTheme, dateTime, FieldType, getDisplayProcessor, ThemeContext, toDataFrame } from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import React from 'react';
import { createRoot } from 'react-dom/client';

const asked = new URLSearchParams(location.search);
const theme = createTheme({ colors: { mode: 'dark' } });
const to = Number(asked.get('to'));
const from = to - Number(asked.get('seconds'));
const step = Math.max(1, Math.round((to - from) / 150));
const COLUMN = (1600 - 16) / 24;
const LINE = 38;
const GAP = 8;
const VARIABLES = {
  run: asked.get('run'), attempt: '.*', framework: '.*', role: '.*', rank: '.*', logged: '.*',
  series: asked.get('series') ?? 'rl_step_current', __rate_interval: '15s', __interval: '15s', __range: `${to - from}s`,
};

const replaced = (text) => text.replace(/\$\{?(\w+)\}?/g, (whole, name) => VARIABLES[name] ?? whole);

async function prometheus(path, parameters) {
  const url = `${asked.get('prometheus')}/api/v1/${path}?${new URLSearchParams(parameters)}`;
  const answer = await (await fetch(url)).json();
  if (answer.status !== 'success') throw new Error(`${parameters.query}: ${answer.error}`);
  return answer.data.result;
}

function legend(format, labels) {
  if (format === '__auto') return Object.entries(labels).map(([name, value]) => `${name}="${value}"`).join(', ');
  return format.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? '').replace(/\s+/g, ' ').trim();
}

async function framesOf(panel) {
  const frames = [];
  for (const target of panel.targets) {
    const query = replaced(target.expr);
    const ranged = target.range;
    const found = ranged
      ? await prometheus('query_range', { query, start: from, end: to, step })
      : await prometheus('query', { query, time: to });
    for (const { metric, values, value } of found) {
      const points = ranged ? values : [value];
      frames.push({ name: legend(target.legendFormat, metric), points });
    }
  }
  return frames.map(({ name, points }, index) => {
    const defaults = panel.fieldConfig.defaults;
    const config = {
      ...defaults,
      displayNameFromDS: name,
      color: { mode: panel.type === 'timeseries' ? 'palette-classic' : 'thresholds' },
      custom: { drawStyle: 'line', showPoints: points.length < 2 ? 'always' : 'never', ...defaults.custom },
    };
    const byTime = new Map(points.map(([time, text]) => [time, Number(text)]));
    const times = panel.type === 'timeseries' ? [...Array(Math.floor((to - from) / step) + 1).keys()].map((n) => from + n * step) : [to];
    const value = times.map((time) => byTime.get(time) ?? (panel.type === 'timeseries' ? null : points[0] && Number(points[0][1])));
    const frame = toDataFrame({
      fields: [
        { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000), config: {} },
        { name: 'Value', type: FieldType.number, values: value, config },
      ],
    });
    frame.fields[0].display = getDisplayProcessor({ field: frame.fields[0], theme });
    const field = frame.fields[1];
    field.state = { seriesIndex: index, displayName: name };
    field.display = getDisplayProcessor({ field, theme });
    return frame;
  });
}

function Lines({ panel, frames, width, height }) {
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
  const timeRange = { ...range, raw: range };
  const shown = { ...panel.options.legend, calcs: [] };
  return <TimeSeries {...{ frames, width, height, timeRange }} timeZone="utc" legend={shown} options={panel.options} />;
}

function Numbers({ panel, frames, width, height }) {
  const each = width / frames.length;
  return (
    <div style={{ display: 'flex' }}>
      {frames.map(({ fields: [, field] }, n) => {
        const value = { ...field.display(field.values[0]), title: field.config.displayNameFromDS };
        return <BigValue key={n} {...{ value, height, theme }} width={each} colorMode="value" graphMode="none" justifyMode="auto"
          textMode={panel.options.textMode === 'auto' && frames.length > 1 ? 'value_and_name' : panel.options.textMode} />;
      })}
    </div>
  );
}

function Bars({ frames, width, height }) {
  const sorted = [...frames].sort((a, b) => b.fields[1].values[0] - a.fields[1].values[0]).slice(0, Math.floor(height / 26));
  const most = Math.max(...sorted.map(({ fields: [, field] }) => field.values[0]));
  return sorted.map(({ fields: [, field] }, n) => {
    const value = { ...field.display(field.values[0]), title: field.config.displayNameFromDS };
    const scaled = { ...field.config, min: field.config.min ?? 0, max: field.config.max ?? most };
    return (
      <BarGauge key={n} {...{ value, width, theme }} height={Math.min(30, height / sorted.length)} field={scaled} display={field.display}
        orientation="horizontal" displayMode="gradient" itemSpacing={4} alignmentFactors={{ title: longest(sorted), text: '1000.0 ms' }} />
    );
  });
}

const longest = (frames) => frames.map(({ fields: [, field] }) => field.config.displayNameFromDS).reduce((a, b) => (a.length > b.length ? a : b));

function Panel({ panel }) {
  const [frames, setFrames] = React.useState(null);
  React.useEffect(() => void framesOf(panel).then(setFrames), [panel]);
  const { x, y, w, h } = panel.gridPos;
  const place = { position: 'absolute', left: x * COLUMN + GAP, top: y * LINE + 48 };
  const Kind = { timeseries: Lines, stat: Numbers, bargauge: Bars }[panel.type];
  return (
    <div style={place}>
      <PanelChrome title={replaced(panel.title).replace('.*', 'All names')} description={panel.description} width={w * COLUMN - GAP} height={h * LINE - GAP}>
        {(width, height) => frames && (frames.length ? <Kind {...{ panel, frames, width, height }} /> : <Nothing />)}
      </PanelChrome>
    </div>
  );
}

const Nothing = () => <div style={{ color: theme.colors.text.secondary, textAlign: 'center', paddingTop: 24 }}>No data</div>;

function Heading({ panel }) {
  const place = { position: 'absolute', left: GAP * 2, top: panel.gridPos.y * LINE + 58 };
  return <div style={{ ...place, color: theme.colors.text.primary, fontSize: 16, fontWeight: 500 }}>⌄ {panel.title}</div>;
}

function Board({ board }) {
  const lines = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  document.title = `${lines * LINE + 64}`;
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ background: theme.colors.background.canvas, width: 1600, height: lines * LINE + 64, position: 'relative' }}>
        <div style={{ padding: 14, color: theme.colors.text.primary, fontSize: 18 }}>
          {board.title} <span style={{ color: theme.colors.text.secondary, fontSize: 14 }}>· Run: {asked.get('name') ?? asked.get('run')}</span>
        </div>
        {board.panels.map((panel) => (panel.type === 'row' ? <Heading key={panel.id} panel={panel} /> : <Panel key={panel.id} panel={panel} />))}
      </div>
    </ThemeContext.Provider>
  );
}

const board = await (await fetch(`boards/${asked.get('board')}.json`)).json();
createRoot(document.getElementById('root')).render(<Board board={board} />);
