// Command engine evaluates queries and alerts with Prometheus's own parser, storage, query engine and rule manager, on
// scrapes that it is given, at times that it is given: no network, no clock, and nothing of Prometheus rewritten.
//
// It reads one Job as JSON from standard input and writes one Outcome as JSON to standard output. A target's scrape is
// repeated at each step until the target has a later one, because a state that lasts is scraped again and again. As in
// Prometheus's scrape loop, each scrape also gives the series `up`, and a series that is missing from a scrape ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"sort"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// Job says what to scrape and what to evaluate; times are seconds from an arbitrary start.
type Job struct {
	Rules   []string `json:"rules"`
	Step    int64    `json:"step"`
	End     int64    `json:"end"`
	Scrapes []Scrape `json:"scrapes"`
	Queries []Query  `json:"queries"`
}

// Scrape is one answer of a target from its time on; an empty body is a failed scrape.
type Scrape struct {
	At          int64             `json:"at"`
	Labels      map[string]string `json:"labels"`
	ContentType string            `json:"contentType"`
	Body        string            `json:"body"`
}

// Query is evaluated from Start to End at each step.
type Query struct {
	Expr  string `json:"expr"`
	Start int64  `json:"start"`
	End   int64  `json:"end"`
}

// Outcome has the answers in the order of the queries, and the alerts that were firing at the end.
type Outcome struct {
	Answers []Answer `json:"answers"`
	Alerts  []Alert  `json:"alerts"`
}

// Answer lists the series of a query's result, or the error.
type Answer struct {
	Error  string   `json:"error"`
	Series []Series `json:"series"`
	// Metrics are the selectors of the query: each one's matchers, for a check that they exist.
	Selectors []Selector `json:"selectors"`
}

// Series is one series of a result: its points are [seconds, value].
type Series struct {
	Labels map[string]string `json:"labels"`
	Points [][2]float64      `json:"points"`
}

// Selector is a vector selector of a query, and how many series it selects at any time.
type Selector struct {
	Text   string `json:"text"`
	Series int    `json:"series"`
}

// Alert is one firing alert.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var job Job
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "promql")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	options := tsdb.DefaultOptions()
	options.RetentionDuration = math.MaxInt64
	db, err := tsdb.Open(folder, promslog.NewNopLogger(), nil, options, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true,
	})
	alerts, err := play(job, db, engine)
	if err != nil {
		return err
	}
	outcome := Outcome{Alerts: alerts, Answers: []Answer{}}
	for _, query := range job.Queries {
		outcome.Answers = append(outcome.Answers, answer(query, job.Step, db, engine))
	}
	return json.NewEncoder(out).Encode(outcome)
}

// play stores the scrapes and evaluates the rules at each step, and returns the alerts that fire at the last one.
func play(job Job, db *tsdb.DB, engine *promql.Engine) ([]Alert, error) {
	ctx := context.Background()
	here, err := url.Parse("http://prometheus")
	if err != nil {
		return nil, err
	}
	manager := rules.NewManager(&rules.ManagerOptions{
		ExternalURL: here,
		QueryFunc:   rules.EngineQueryFunc(engine, db),
		Appendable:  db,
		Queryable:   db,
		Context:     ctx,
		NotifyFunc:  func(context.Context, string, ...*rules.Alert) {},
		Logger:      promslog.NewNopLogger(),
	})
	interval := time.Duration(job.Step) * time.Second
	groups, failures := manager.LoadGroups(interval, labels.EmptyLabels(), here.String(), nil, false, job.Rules...)
	if len(failures) > 0 {
		return nil, errors.Join(failures...)
	}
	targets := targetsOf(job.Scrapes)
	for at := int64(0); at <= job.End; at += job.Step {
		for _, target := range targets {
			if err := target.scrape(ctx, db, at); err != nil {
				return nil, err
			}
		}
		for _, group := range groups {
			group.Eval(ctx, moment(at))
			for _, rule := range group.Rules() {
				if rule.LastError() != nil {
					return nil, fmt.Errorf("rule %s: %w", rule.Name(), rule.LastError())
				}
			}
		}
	}
	return firing(groups), nil
}

func firing(groups map[string]*rules.Group) []Alert {
	found := []Alert{}
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			for _, alert := range rule.ActiveAlerts() {
				if alert.State == rules.StateFiring {
					found = append(found, Alert{Labels: alert.Labels.Map(), Annotations: alert.Annotations.Map()})
				}
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return fmt.Sprint(found[i].Labels) < fmt.Sprint(found[j].Labels) })
	return found
}

// A target has the scrapes of one set of labels, and the series of its latest scrape.
type target struct {
	labels  labels.Labels
	scrapes []Scrape
	series  map[string]labels.Labels
}

func targetsOf(scrapes []Scrape) []*target {
	var targets []*target
	byLabels := map[uint64]*target{}
	for _, scrape := range scrapes {
		set := labels.FromMap(scrape.Labels)
		known, ok := byLabels[set.Hash()]
		if !ok {
			known = &target{labels: set, series: map[string]labels.Labels{}}
			byLabels[set.Hash()] = known
			targets = append(targets, known)
		}
		known.scrapes = append(known.scrapes, scrape)
	}
	return targets
}

// scrape stores what the target answers at a time: the latest of its scrapes, or nothing before the first.
func (t *target) scrape(ctx context.Context, db *tsdb.DB, at int64) error {
	var latest *Scrape
	for i := range t.scrapes {
		if t.scrapes[i].At <= at {
			latest = &t.scrapes[i]
		}
	}
	if latest == nil {
		return nil
	}
	appender, stamp := db.Appender(ctx), moment(at).UnixMilli()
	seen, up := map[string]labels.Labels{}, 0.0
	if latest.Body != "" {
		up = 1
		if err := t.store(appender, *latest, stamp, seen); err != nil {
			return err
		}
	}
	for key, series := range t.series {
		if _, ok := seen[key]; !ok {
			if _, err := appender.Append(0, series, stamp, math.Float64frombits(value.StaleNaN)); err != nil {
				return err
			}
		}
	}
	t.series = seen
	name := labels.NewBuilder(t.labels).Set(labels.MetricName, "up").Labels()
	if _, err := appender.Append(0, name, stamp, up); err != nil {
		return err
	}
	return appender.Commit()
}

func (t *target) store(appender storage.Appender, scrape Scrape, stamp int64, seen map[string]labels.Labels) error {
	parsed, err := textparse.New(
		[]byte(scrape.Body), scrape.ContentType, "", false, true, false, labels.NewSymbolTable(),
	)
	if err != nil {
		return err
	}
	for {
		entry, err := parsed.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, number := parsed.Series()
		var own labels.Labels
		parsed.Labels(&own)
		builder := labels.NewBuilder(own)
		t.labels.Range(func(label labels.Label) {
			if own.Has(label.Name) { // as Prometheus does without honor_labels
				builder.Set("exported_"+label.Name, own.Get(label.Name))
			}
			builder.Set(label.Name, label.Value)
		})
		series := builder.Labels()
		if _, err := appender.Append(0, series, stamp, number); err != nil {
			return err
		}
		seen[series.String()] = series
	}
}

func answer(query Query, step int64, db *tsdb.DB, engine *promql.Engine) Answer {
	ctx := context.Background()
	parsed, err := parser.ParseExpr(query.Expr)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	series, err := evaluate(ctx, query, step, db, engine)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	found := Answer{Series: series, Selectors: []Selector{}}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			bare := parser.VectorSelector{Name: selector.Name, LabelMatchers: selector.LabelMatchers}
			selected, failure := evaluate(
				ctx, Query{Expr: bare.String(), Start: query.Start, End: query.End}, step, db, engine,
			)
			if failure != nil {
				found.Error = failure.Error()
			}
			found.Selectors = append(found.Selectors, Selector{Text: bare.String(), Series: len(selected)})
		}
		return nil
	})
	return found
}

func evaluate(ctx context.Context, query Query, step int64, db *tsdb.DB, engine *promql.Engine) ([]Series, error) {
	interval := time.Duration(step) * time.Second
	asked, err := engine.NewRangeQuery(ctx, db, nil, query.Expr, moment(query.Start), moment(query.End), interval)
	if err != nil {
		return nil, err
	}
	defer asked.Close()
	matrix, err := asked.Exec(ctx).Matrix()
	if err != nil {
		return nil, err
	}
	found := []Series{}
	for _, series := range matrix {
		points := [][2]float64{}
		for _, point := range series.Floats {
			if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) { // JSON has no words for them
				points = append(points, [2]float64{float64(point.T/1000) - start, point.F})
			}
		}
		found = append(found, Series{Labels: series.Metric.Map(), Points: points})
	}
	return found, nil
}

const start = 1_700_000_000

func moment(seconds int64) time.Time {
	return time.Unix(start+seconds, 0).UTC()
}
