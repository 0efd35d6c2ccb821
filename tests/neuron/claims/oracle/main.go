// Command oracle answers with upstream's own code: whether selectors of claims match devices.
//
// It reads one Case as JSON from each line of standard input, and writes its Answers as JSON on a line of standard
// output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Case is an expression, and the devices to evaluate it for.
type Case struct {
	Expression string   `json:"expression"`
	Devices    []Device `json:"devices"`
}

// Device has what an expression can read.
type Device struct {
	Driver     string                                                    `json:"driver"`
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity   map[resourceapi.QualifiedName]resource.Quantity           `json:"capacity"`
}

// Answers has an Answer for each device, or why the expression does not compile.
type Answers struct {
	Refusal string   `json:"refusal"`
	Answers []Answer `json:"answers"`
}

// Answer says whether a device matches, or has the runtime error.
type Answer struct {
	Matches bool   `json:"matches"`
	Error   string `json:"error"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	buffered := bufio.NewWriter(out)
	defer buffered.Flush()
	encoder := json.NewEncoder(buffered)
	for {
		var asked Case
		if err := decoder.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(answers(asked)); err != nil {
			return err
		}
	}
}

// The scheduler evaluates what is stored, so the compiler's environment is the one of stored expressions.
func answers(asked Case) Answers {
	compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(
		asked.Expression, cel.Options{DisableCostEstimation: true},
	)
	if compiled.Error != nil {
		return Answers{Refusal: compiled.Error.Error()}
	}
	found := Answers{Answers: []Answer{}}
	for _, device := range asked.Devices {
		capacity := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
		for name, value := range device.Capacity {
			capacity[name] = resourceapi.DeviceCapacity{Value: value}
		}
		matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
			Driver: device.Driver, Attributes: device.Attributes, Capacity: capacity,
		})
		answer := Answer{Matches: matches}
		if err != nil {
			answer.Error = err.Error()
		}
		found.Answers = append(found.Answers, answer)
	}
	return found
}
