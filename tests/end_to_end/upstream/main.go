// Command upstream runs upstream's end-to-end tests of Dynamic Resource Allocation.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	_ "k8s.io/kubernetes/test/e2e/dra"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
)

type result struct{ failed bool }

func (r *result) Fail() { r.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	gomega.RegisterFailHandler(framework.Fail)
	if !ginkgo.RunSpecs(&result{}, "claims") {
		os.Exit(1)
	}
}
